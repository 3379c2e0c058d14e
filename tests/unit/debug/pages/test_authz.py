"""The debug page that explains authorization decisions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import ObjectKey
from pilot.debug.page import Later, Refused
from pilot.debug.page_routes import sections
from pilot.debug.pages.authz import authz
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


def from_source(fields: str, action: str = "ALLOW") -> str:
    return f"action: {action}, rules: [{{from: [{{source: {{{fields}}}}}]}}]"


def to_operation(fields: str, action: str = "ALLOW") -> str:
    return f"action: {action}, rules: [{{to: [{{operation: {{{fields}}}}}]}}]"


def make_check(*policies: Plain) -> Any:
    """Return a function from request fields to the page's response."""
    mesh_world = world(WEB, WEB_POD, *policies, mesh_config=MESH)
    node = mesh_world.connect(proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}))
    connection = FakeConnection(id="web-0.a-1", proxy_key=node, proxy=mesh_world.mesh.proxies.peek(node))
    page_sources = sources(mesh_world.mesh, connection)

    def ask(request: str | None = None, **fields: Any) -> Any:
        text = request if request is not None else json.dumps(fields) if fields else None
        return authz(page_sources, {"proxyID": "web-0", **({"request": text} if text is not None else {})})

    return ask


def decide(*policies: Plain, **fields: Any) -> tuple[str, str]:
    response = make_check(*policies)(**fields)
    return response["decision"], response["why"]


def test_requests_are_allowed_without_policies() -> None:
    assert decide(path="/") == NO_POLICY


NO_POLICY = "allowed", "no ALLOW policy applies to this workload, and no DENY policy matches"
DENY_X, ALLOW_CALLER = (
    policy("no-x", to_operation("paths: ['/x*']", "DENY")),
    policy("callers", from_source(f"principals: [{CALLER}]")),
)
DELEGATING = policy("asks", f"provider: {{name: judge}}, {to_operation('paths: [/vip]', 'CUSTOM')}")
ROWS = [
    ((ALLOW_CALLER,), {"principal": CALLER}, ("allowed", "AuthorizationPolicy a/callers matches with spec.rules[0]")),
    (
        (ALLOW_CALLER,),
        {"principal": f"spiffe://{CALLER}"},
        ("allowed", "AuthorizationPolicy a/callers matches with spec.rules[0]"),
    ),
    (
        (ALLOW_CALLER,),
        {"principal": CALLER.replace("cluster.local", "old.td")},
        ("allowed", "AuthorizationPolicy a/callers matches with spec.rules[0]"),
    ),
    (
        (ALLOW_CALLER,),
        {"path": "/"},
        ("denied", "AuthorizationPolicy a/callers is the only ALLOW policy, and none of its rules matches"),
    ),
    (
        (ALLOW_CALLER, DENY_X),
        {"principal": CALLER, "path": "/x/y"},
        ("denied", "AuthorizationPolicy a/no-x matches with spec.rules[0]"),
    ),
    ((DENY_X,), {"path": "/y?/x"}, NO_POLICY),
    (
        (DELEGATING,),
        {"path": "/vip"},
        ("asked", "AuthorizationPolicy a/asks delegates to the external authorizer judge with spec.rules[0]"),
    ),
    ((DELEGATING, DENY_X), {"path": "/x"}, ("denied", "AuthorizationPolicy a/no-x matches with spec.rules[0]")),
    (
        (DELEGATING, ALLOW_CALLER),
        {"path": "/vip"},
        ("denied", "AuthorizationPolicy a/callers is the only ALLOW policy, and none of its rules matches"),
    ),
    (
        (policy("none", ""),),
        {"path": "/"},
        ("denied", "AuthorizationPolicy a/none is the only ALLOW policy, and none of its rules matches"),
    ),
    ((policy("tried", to_operation("paths: [/]", "DENY"), "{istio.io/dry-run: 'true'}"),), {"path": "/"}, NO_POLICY),
    (
        (policy("ns", from_source("namespaces: [b]")),),
        {"namespace": "b"},
        ("allowed", "AuthorizationPolicy a/ns matches with spec.rules[0]"),
    ),
]


@pytest.mark.parametrize(("policies", "request_", "expected"), ROWS)
def test_decisions(policies: tuple[Plain, ...], request_: dict[str, Any], expected: tuple[str, str]) -> None:
    assert decide(*policies, **request_) == expected


FIELDS = [
    (to_operation("methods: [GET]"), {"method": "GET"}, {"method": "PUT"}),
    (to_operation("hosts: ['*.A.com']"), {"host": "x.a.COM"}, {"host": "a.com"}),
    (to_operation("paths: ['/{*}/b']"), {"path": "/a/b"}, {"path": "/a/c/b"}),
    (to_operation("paths: ['/f/{**}']"), {"path": "/f/a/b"}, {"path": "/g"}),
    (to_operation("ports: ['8080']"), {"port": 8080}, {"port": 1}),
    (from_source("ipBlocks: [10.0.0.0/8]"), {"ip": "10.1.1.1"}, {"ip": "11.1.1.1"}),
    (from_source("ipBlocks: ['fd00::/8']"), {"ip": "fd00::1"}, {"ip": "10.1.1.1"}),
    (
        from_source("remoteIpBlocks: [10.0.0.0/8]"),
        {"remoteIp": "10.1.1.1", "ip": "11.1.1.1"},
        {"remoteIp": "11.1.1.1", "ip": "10.1.1.1"},
    ),
    (from_source("remoteIpBlocks: [10.0.0.0/8]"), {"ip": "10.1.1.1"}, {"path": "/"}),
    (from_source("notPrincipals: ['*']"), {"path": "/"}, {"principal": CALLER}),
    (from_source("serviceAccounts: [a.b]"), {"principal": "td/ns/a/sa/a.b"}, {"principal": "td/ns/a/sa/axb"}),
    (from_source("trustDomains: [td]"), {"principal": "td/ns/a/sa/b"}, {"principal": "tdx/ns/a/sa/b"}),
    (
        from_source("requestPrincipals: ['i/*']"),
        {"claims": {"iss": "i", "sub": "s"}},
        {"claims": {"iss": "j", "sub": "s"}},
    ),
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


@pytest.mark.parametrize(("spec", "matching", "non_matching"), FIELDS)
def test_request_fields(spec: str, matching: dict[str, Any], non_matching: dict[str, Any] | None) -> None:
    ask = make_check(policy("p", spec))
    assert ask(**matching)["decision"] == "allowed"
    assert non_matching is None or ask(**non_matching)["decision"] == "denied"


def test_strict_mutual_tls_denies_plaintext_before_policies() -> None:
    strict = make("PeerAuthentication", "p", "{mtls: {mode: STRICT}}")
    assert decide(strict, path="/") == (
        "denied",
        "PeerAuthentication is STRICT and the client has no mesh certificate",
    )
    assert decide(strict, principal=CALLER)[0] == "allowed"


def test_tcp_port_ignores_http_fields() -> None:
    ask = make_check(DENY_X)
    assert (ask(path="/", port=9000)["protocol"], ask(path="/", port=9000)["decision"]) == ("TCP", "denied")
    assert (ask(path="/", port=8080)["protocol"], ask(path="/", port=8080)["decision"]) == ("HTTP", "allowed")
    assert ask(path="/", port=8080, tcp=True)["decision"] == "denied"


@pytest.mark.parametrize(
    "request_", ["{", "[]", '{"ports": 1}', '{"ip": "x"}', '{"port": "80"}', '{"claims": ' + '{"a":' * 100_000]
)
def test_invalid_request_is_rejected(request_: str) -> None:
    with pytest.raises(Refused, match="request: "):
        make_check()(request_)


def test_policies_are_listed_without_a_request() -> None:
    caller_rule = {"from": [f"principal {CALLER}"], "to": [], "when": []}
    no_x_rule = {"from": [], "to": ["path /x*"], "when": []}
    assert make_check(ALLOW_CALLER, DENY_X)() == {
        "proxy": "web-0.a",
        "mutualTls": "PERMISSIVE",
        "mtlsBy": [],
        "identityBy": [
            {"group": "security.istio.io", "kind": "AuthorizationPolicy", "namespace": "a", "name": "callers"}
        ],
        "policies": [
            {"namespace": "a", "name": "callers", "action": "ALLOW", "rules": [caller_rule], "moreRules": 0},
            {"namespace": "a", "name": "no-x", "action": "DENY", "rules": [no_x_rule], "moreRules": 0},
        ],
    }


def test_authorizationz_page_matches_istiod() -> None:
    mesh_world = world(ALLOW_CALLER, policy("older", "", day=1, namespace="b"))
    page = next(p for pages in sections(DebugSettings()).values() for p in pages if p.path == "/debug/authorizationz")
    spec = {"rules": [{"from": [{"source": {"principals": [CALLER]}}]}]}
    response = page.answer(sources(mesh_world.mesh), {})
    assert isinstance(response, Later)
    assert response.make() == {
        "authorization_policies": {
            "namespace_to_policies": {
                "a": [{"name": "callers", "namespace": "a", "annotations": None, "spec": spec}],
                "b": [{"name": "older", "namespace": "b", "annotations": None, "spec": {}}],
            },
            "root_namespace": "istio-system",
        }
    }
    assert ObjectKey("a", "callers") in AUTHORIZATION_POLICY.table(mesh_world.mesh).all_keys()


def test_router_is_supported() -> None:
    mesh_world = world(
        policy("edge", f"selector: {{matchLabels: {{istio: edge}}}}, {from_source('ipBlocks: [10.0.0.0/8]')}")
    )
    node = mesh_world.connect(proxy("router", "edge-0", "a", "10.1.0.9", {"istio": "edge"}))
    page_sources = sources(
        mesh_world.mesh, FakeConnection(id="edge-0.a-1", proxy_key=node, proxy=mesh_world.mesh.proxies.peek(node))
    )
    responses = [
        authz(page_sources, {"proxyID": "edge-0", "request": json.dumps({"ip": ip})}) for ip in ("10.1.1.1", "11.1.1.1")
    ]
    assert [(response["decision"], response["mutualTls"]) for response in responses] == [
        ("allowed", ""),
        ("denied", ""),
    ]
