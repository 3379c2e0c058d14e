"""Which policy decides about a request: the page that says so, and what pilotctl prints of it."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.pilotctl import pilotctl
from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import ObjectKey
from pilot.debug.authz import authz
from pilot.debug.page import Later, Refused
from pilot.debug.pages import sections
from pilot.settings.process import DebugSettings
from testing.mesh.debug_server import FakeConnection, sources
from testing.mesh.listeners import WEB_POD, service
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import proxy

WEB = service("web", "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]")
CALLER = "cluster.local/ns/a/sa/caller"
MESH = "{trustDomainAliases: [old.td], extensionProviders: [{name: judge, envoyExtAuthzGrpc: {service: web.a.svc.cluster.local, port: 80}}]}"


def policy(name: str, spec: str, annotations: str = "{}", namespace: str = "a", day: int = 1) -> Plain:
    return make("AuthorizationPolicy", name, f"{{{spec}}}", namespace, day, annotations=annotations)


def of(fields: str, action: str = "ALLOW") -> str:
    return f"action: {action}, rules: [{{from: [{{source: {{{fields}}}}}]}}]"


def to(fields: str, action: str = "ALLOW") -> str:
    return f"action: {action}, rules: [{{to: [{{operation: {{{fields}}}}}]}}]"


def asking(*policies: Plain) -> Any:
    """A function from the fields of a request to what the page says of it."""
    made = world(WEB, WEB_POD, *policies, mesh_config=MESH)
    node = made.connect(proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}))
    connection = FakeConnection(id="web-0.a-1", proxy_key=node, proxy=made.mesh.proxies.peek(node))
    shown = sources(made.mesh, connection)

    def ask(request: str | None = None, **fields: Any) -> Any:
        text = request if request is not None else json.dumps(fields) if fields else None
        return authz(shown, {"proxyID": "web-0", **({"request": text} if text is not None else {})})

    return ask


def decided(*policies: Plain, **fields: Any) -> tuple[str, str]:
    found = asking(*policies)(**fields)
    return found["decision"], found["why"]


def test_without_a_policy_everything_passes() -> None:
    assert decided(path="/") == NOTHING


NOTHING = "allowed", "no ALLOW policy applies to this workload, and no DENY policy matches"
DENY_X, ALLOW_CALLER = policy("no-x", to("paths: ['/x*']", "DENY")), policy("callers", of(f"principals: [{CALLER}]"))
ASKS = policy("asks", f"provider: {{name: judge}}, {to('paths: [/vip]', 'CUSTOM')}")
ROWS = [
    ((ALLOW_CALLER,), {"principal": CALLER}, ("allowed", "AuthorizationPolicy a/callers matches with rule 0")),
    (
        (ALLOW_CALLER,),
        {"principal": f"spiffe://{CALLER}"},
        ("allowed", "AuthorizationPolicy a/callers matches with rule 0"),
    ),
    (
        (ALLOW_CALLER,),
        {"principal": CALLER.replace("cluster.local", "old.td")},
        ("allowed", "AuthorizationPolicy a/callers matches with rule 0"),
    ),
    ((ALLOW_CALLER,), {"path": "/"}, ("denied", "the only ALLOW policy has no matching rule")),
    (
        (ALLOW_CALLER, DENY_X),
        {"principal": CALLER, "path": "/x/y"},
        ("denied", "AuthorizationPolicy a/no-x matches with rule 0"),
    ),
    ((DENY_X,), {"path": "/y?/x"}, NOTHING),
    (
        (ASKS,),
        {"path": "/vip"},
        ("asked", "AuthorizationPolicy a/asks delegates to the external authorizer judge with rule 0"),
    ),
    ((ASKS, DENY_X), {"path": "/x"}, ("denied", "AuthorizationPolicy a/no-x matches with rule 0")),
    ((ASKS, ALLOW_CALLER), {"path": "/vip"}, ("denied", "the only ALLOW policy has no matching rule")),
    ((policy("none", ""),), {"path": "/"}, ("denied", "the only ALLOW policy has no matching rule")),
    ((policy("tried", to("paths: [/]", "DENY"), "{istio.io/dry-run: 'true'}"),), {"path": "/"}, NOTHING),
    (
        (policy("ns", of("namespaces: [b]")),),
        {"namespace": "b"},
        ("allowed", "AuthorizationPolicy a/ns matches with rule 0"),
    ),
]


@pytest.mark.parametrize(("policies", "request_", "expected"), ROWS)
def test_what_decides(policies: tuple[Plain, ...], request_: dict[str, Any], expected: tuple[str, str]) -> None:
    assert decided(*policies, **request_) == expected


FIELDS = [
    (to("methods: [GET]"), {"method": "GET"}, {"method": "PUT"}),
    (to("hosts: ['*.A.com']"), {"host": "x.a.COM"}, {"host": "a.com"}),
    (to("paths: ['/{*}/b']"), {"path": "/a/b"}, {"path": "/a/c/b"}),
    (to("paths: ['/f/{**}']"), {"path": "/f/a/b"}, {"path": "/g"}),
    (to("ports: ['8080']"), {"port": 8080}, {"port": 1}),
    (of("ipBlocks: [10.0.0.0/8]"), {"ip": "10.1.1.1"}, {"ip": "11.1.1.1"}),
    (of("ipBlocks: ['fd00::/8']"), {"ip": "fd00::1"}, {"ip": "10.1.1.1"}),
    (
        of("remoteIpBlocks: [10.0.0.0/8]"),
        {"remoteIp": "10.1.1.1", "ip": "11.1.1.1"},
        {"remoteIp": "11.1.1.1", "ip": "10.1.1.1"},
    ),
    (of("remoteIpBlocks: [10.0.0.0/8]"), {"ip": "10.1.1.1"}, {"path": "/"}),
    (of("notPrincipals: ['*']"), {"path": "/"}, {"principal": CALLER}),
    (of("serviceAccounts: [a.b]"), {"principal": "td/ns/a/sa/a.b"}, {"principal": "td/ns/a/sa/axb"}),
    (of("trustDomains: [td]"), {"principal": "td/ns/a/sa/b"}, {"principal": "tdx/ns/a/sa/b"}),
    (of("requestPrincipals: ['i/*']"), {"claims": {"iss": "i", "sub": "s"}}, {"claims": {"iss": "j", "sub": "s"}}),
    (
        "rules: [{when: [{key: 'request.headers[X-A]', values: ['b*']}]}]",
        {"headers": {"x-a": "bc"}},
        {"headers": {"x-a": "c"}},
    ),
    (
        "rules: [{when: [{key: 'request.auth.claims[g][h]', values: [v]}]}]",
        {"claims": {"g": {"h": ["u", "v"]}}},
        {"claims": {"g": "v"}},
    ),
    (
        "rules: [{when: [{key: 'request.auth.claims[scope]', values: [read]}]}]",
        {"claims": {"scope": "read write"}},
        {"claims": {"scope": "ready"}},
    ),
    ("rules: [{when: [{key: connection.sni, values: [x]}]}]", {"sni": "x"}, {"sni": "y"}),
    ("rules: [{when: [{key: destination.ip, values: [10.1.0.1]}]}]", {"path": "/"}, {"toIp": "10.1.0.2"}),
    ("rules: [{when: [{key: 'experimental.envoy.filters.x[y]', notValues: [a]}]}]", {"path": "/"}, None),
]


@pytest.mark.parametrize(("spec", "meets", "misses"), FIELDS)
def test_every_field_is_understood(spec: str, meets: dict[str, Any], misses: dict[str, Any] | None) -> None:
    ask = asking(policy("p", spec))
    assert ask(**meets)["decision"] == "allowed"
    assert misses is None or ask(**misses)["decision"] == "denied"


def test_plain_text_is_refused_by_strict_mutual_tls_before_any_policy() -> None:
    strict = make("PeerAuthentication", "p", "{mtls: {mode: STRICT}}")
    assert decided(strict, path="/") == (
        "denied",
        "PeerAuthentication is STRICT and the client has no mesh certificate",
    )
    assert decided(strict, principal=CALLER)[0] == "allowed"


def test_a_port_of_tcp_has_no_requests() -> None:
    ask = asking(DENY_X)
    assert (ask(path="/", port=9000)["protocol"], ask(path="/", port=9000)["decision"]) == ("TCP", "denied")
    assert (ask(path="/", port=8080)["protocol"], ask(path="/", port=8080)["decision"]) == ("HTTP", "allowed")
    assert ask(path="/", port=8080, tcp=True)["decision"] == "denied"


@pytest.mark.parametrize(
    "request_", ["{", "[]", '{"ports": 1}', '{"ip": "x"}', '{"port": "80"}', '{"claims": ' + '{"a":' * 100_000]
)
def test_a_question_that_is_wrong_is_refused(request_: str) -> None:
    with pytest.raises(Refused, match="request: "):
        asking()(request_)


def test_without_a_question_the_policies_are_listed() -> None:
    assert asking(ALLOW_CALLER, DENY_X)() == {
        "proxy": "web-0.a",
        "policies": [
            {"namespace": "a", "name": "callers", "action": "ALLOW", "rulesMet": []},
            {"namespace": "a", "name": "no-x", "action": "DENY", "rulesMet": []},
        ],
    }


def test_every_policy_is_shown_as_istiod_shows_it() -> None:
    made = world(ALLOW_CALLER, policy("older", "", day=1, namespace="b"))
    page = next(p for pages in sections(DebugSettings()).values() for p in pages if p.path == "/debug/authorizationz")
    spec = {"rules": [{"from": [{"source": {"principals": [CALLER]}}]}]}
    answer = page.answer(sources(made.mesh), {})
    assert isinstance(answer, Later)
    assert answer.make() == {
        "authorization_policies": {
            "namespace_to_policies": {
                "a": [{"name": "callers", "namespace": "a", "annotations": None, "spec": spec}],
                "b": [{"name": "older", "namespace": "b", "annotations": None, "spec": {}}],
            },
            "root_namespace": "istio-system",
        }
    }
    assert ObjectKey("a", "callers") in AUTHORIZATION_POLICY.table(made.mesh).all_keys()


def test_a_router_is_asked_like_a_sidecar() -> None:
    made = world(policy("edge", f"selector: {{matchLabels: {{istio: edge}}}}, {of('ipBlocks: [10.0.0.0/8]')}"))
    node = made.connect(proxy("router", "edge-0", "a", "10.1.0.9", {"istio": "edge"}))
    shown = sources(made.mesh, FakeConnection(id="edge-0.a-1", proxy_key=node, proxy=made.mesh.proxies.peek(node)))
    found = [authz(shown, {"proxyID": "edge-0", "request": json.dumps({"ip": ip})}) for ip in ("10.1.1.1", "11.1.1.1")]
    assert [(one["decision"], one["mutualTls"]) for one in found] == [("allowed", ""), ("denied", "")]


# -- pilotctl --------------------------------------------------------------------------------------------------------------


def printed(ask: Any, *words: str) -> str:
    """Returns what the command prints when the page itself answers, without a server between."""

    def get(_: PageClient, page: str, **query: str) -> Any:
        assert (page, query["proxyID"]) == ("authz", "web-0")
        return ask(query.get("request"))

    with mock.patch.object(PageClient, "get", get):
        result = CliRunner().invoke(pilotctl, ["authz", "check", "web-0", *words], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output.removesuffix("\n")


def test_it_prints_who_decides_and_which_rules_are_met() -> None:
    ask = asking(ALLOW_CALLER, DENY_X, ASKS, policy("tried", to("paths: ['*']", "DENY"), "{istio.io/dry-run: 'true'}"))
    assert printed(ask, "--path", "/x/1", "--from-principal", CALLER, "--port", "8080") == (
        "DENIED: AuthorizationPolicy a/no-x matches with rule 0\n"
        "HTTP to web-0.a from spiffe://cluster.local/ns/a/sa/caller; mutual TLS is PERMISSIVE\n"
        "\n"
        "ACTION           NAMESPACE   POLICY    MATCHES\n"
        "CUSTOM (judge)   a           asks      -\n"
        "ALLOW            a           callers   rule 0\n"
        "DENY             a           no-x      rule 0\n"
        "DENY (dry run)   a           tried     rule 0"
    )
    assert printed(ask, "--path", "/vip", "--from-principal", CALLER).startswith(
        "DELEGATED: AuthorizationPolicy a/asks delegates"
    )


def test_it_prints_the_policies_where_nothing_is_asked() -> None:
    assert printed(asking(DENY_X)) == "ACTION   NAMESPACE   POLICY\nDENY     a           no-x"
    assert printed(asking()) == "No AuthorizationPolicy applies to web-0.a."


def test_headers_and_claims_are_told_by_flags() -> None:
    when = "rules: [{when: [{key: 'request.headers[a]', values: [b=c]}, {key: 'request.auth.claims[g]', values: [v]}]}]"
    ask = asking(policy("p", when))
    assert printed(ask, "--header", "A=b=c", "--claim", 'g=["v"]').startswith("ALLOWED")
    assert json.loads(printed(ask, "--header", "a=b=c", "--claim", "g=w", "-o", "json"))["decision"] == "denied"


@pytest.mark.parametrize("words", [("--header", "a"), ("--claim", "=x"), ("--claim", "a=[")])
def test_a_flag_that_is_wrong_is_told(words: tuple[str, str]) -> None:
    with pytest.raises(CommandError):
        printed(asking(), *words)
