"""AuthorizationPolicies in Envoy's words: each field and condition, what cannot be said, and which filters a workload has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from google.protobuf import json_format

from pilot.config.security.authorization_policy import Rule
from pilot.envoy.rbac.principal import RuleContext, claim_path, in_all_domains, with_aliases
from pilot.envoy.rbac.rbac_rules import build_rule
from pilot.lib.regex import MAX_LENGTH

DOMAINS = ("td", "old")
ANY = {"any": True}


def built(rule: str, tcp: bool = False, allows: bool = True, domains: tuple[str, ...] = DOMAINS) -> Any:
    """The policy of a rule, as plain data; None where there is none."""
    policy = build_rule(msgspec.convert(yaml.safe_load(rule), Rule), RuleContext("own", domains, tcp), allows)
    return json_format.MessageToDict(policy) if policy is not None else None


def permissions(rule: str, **how: Any) -> Any:
    return [p["andRules"]["rules"] for p in built(rule, **how)["permissions"]]


def principals(rule: str, **how: Any) -> Any:
    return [p["andIds"]["ids"] for p in built(rule, **how)["principals"]]


def one_of(*found: Any) -> Any:
    return {"orRules": {"rules": list(found)}}


def any_of(*found: Any) -> Any:
    return {"orIds": {"ids": list(found)}}


def header(name: str, **match: Any) -> Any:
    return {
        "header": {"name": name, **({"stringMatch": match} if match != {"present": True} else {"presentMatch": True})}
    }


def named(**match: Any) -> Any:
    return {"authenticated": {"principalName": match}}


def regex(pattern: str) -> Any:
    return {"safeRegex": {"regex": pattern}}


def claim(*path: str, value: Any) -> Any:
    return {
        "metadata": {
            "filter": "envoy.filters.http.jwt_authn",
            "path": [{"key": key} for key in ("payload", *path)],
            "value": value,
        }
    }


def text_claim(name: str, **match: Any) -> Any:
    return claim(name, value={"stringMatch": match})


def listed(value: Any) -> Any:
    return {"orMatch": {"valueMatchers": [{"listMatch": {"oneOf": value}}, value]}}


OPERATIONS = [
    ("hosts: [A.com]", header(":authority", exact="A.com", ignoreCase=True)),
    ("hosts: ['*.a.com']", header(":authority", suffix=".a.com", ignoreCase=True)),
    ("hosts: ['a.com:*']", header(":authority", prefix="a.com:", ignoreCase=True)),
    ("hosts: ['*']", header(":authority", present=True)),
    ("methods: [GET]", header(":method", exact="GET")),
    ("methods: ['*']", header(":method", present=True)),
    ("paths: [/a]", {"urlPath": {"path": {"exact": "/a"}}}),
    ("paths: ['/a*']", {"urlPath": {"path": {"prefix": "/a"}}}),
    ("paths: ['*/a']", {"urlPath": {"path": {"suffix": "/a"}}}),
    ("paths: ['*']", {"urlPath": {"path": regex(".+")}}),
    ("paths: ['/a*b']", {"urlPath": {"path": {"exact": "/a*b"}}}),
    ("ports: ['80']", {"destinationPort": 80}),
]


@pytest.mark.parametrize(("operation", "expected"), OPERATIONS, ids=[row[0] for row in OPERATIONS])
def test_an_operation_in_envoys_words(operation: str, expected: Any) -> None:
    assert permissions(f"to: [{{operation: {{{operation}}}}}]") == [[one_of(expected)]]
    field = operation[0].upper() + operation[1:]
    assert permissions(f"to: [{{operation: {{not{field}}}}}]") == [[{"notRule": one_of(expected)}]]


@pytest.mark.parametrize(
    ("template", "expected"), [("/a/{*}", "/a/*"), ("/{*}/b/{**}", "/*/b/**"), ("/{**}/end", "/**/end")]
)
def test_a_path_template_becomes_envoys_own(template: str, expected: str) -> None:
    found = permissions(f"to: [{{operation: {{paths: ['{template}']}}}}]")[0][0]["orRules"]["rules"][0]["uriTemplate"]
    assert found["name"] == "uri-template"
    assert found["typedConfig"]["pathTemplate"] == expected


SOURCES = [
    ("principals: [far/ns/a/sa/b]", [named(exact="spiffe://far/ns/a/sa/b")]),
    ("principals: [td/ns/a/sa/b]", [named(exact="spiffe://td/ns/a/sa/b"), named(exact="spiffe://old/ns/a/sa/b")]),
    (
        "principals: [cluster.local/ns/a/sa/b]",
        [named(exact="spiffe://td/ns/a/sa/b"), named(exact="spiffe://old/ns/a/sa/b")],
    ),
    ("principals: ['*/ns/a.b/sa/c']", [named(**regex(r"spiffe://.*/ns/a\.b/sa/c"))]),
    ("principals: ['td/ns/a/*']", [named(prefix="spiffe://td/ns/a/")]),
    ("principals: ['*']", [named(**regex(".+"))]),
    ("namespaces: [a]", [named(**regex(".*/ns/a/.*"))]),
    ("namespaces: ['a*b.']", [named(**regex(r".*/ns/a.*b\./.*"))]),
    ("serviceAccounts: [a]", [named(**regex("spiffe://.+/ns/own/(.+/|)sa/a(/.+)?"))]),
    ("serviceAccounts: [x/a]", [named(**regex("spiffe://.+/ns/x/(.+/|)sa/a(/.+)?"))]),
    ("trustDomains: [far]", [named(prefix="spiffe://far/")]),
    ("trustDomains: [old]", [named(prefix="spiffe://td/"), named(prefix="spiffe://old/")]),
    ("trustDomains: ['*']", [named(prefix="spiffe://")]),
    ("trustDomains: ['*.a.com']", [named(**regex(r"spiffe://[^/]*\.a\.com/.*"))]),
    ("ipBlocks: [10.1.2.3/8]", [{"directRemoteIp": {"addressPrefix": "10.1.2.3", "prefixLen": 8}}]),
    ("ipBlocks: ['::1']", [{"directRemoteIp": {"addressPrefix": "::1", "prefixLen": 128}}]),
    ("remoteIpBlocks: [10.1.2.3]", [{"remoteIp": {"addressPrefix": "10.1.2.3", "prefixLen": 32}}]),
]


@pytest.mark.parametrize(("source", "expected"), SOURCES, ids=[row[0] for row in SOURCES])
@pytest.mark.parametrize("tcp", [False, True], ids=["requests", "connections"])
def test_a_source_in_envoys_words(source: str, expected: Any, tcp: bool) -> None:
    assert principals(f"from: [{{source: {{{source}}}}}]", tcp=tcp) == [[any_of(*expected)]]
    field = source[0].upper() + source[1:]
    assert principals(f"from: [{{source: {{not{field}}}}}]", tcp=tcp) == [[{"notId": any_of(*expected)}]]


def test_cve_2026_39350_dots_of_service_accounts_and_namespaces_are_dots() -> None:
    found = principals("from: [{source: {serviceAccounts: [n.s/cert-manager.io]}}]")
    assert found == [[any_of(named(**regex(r"spiffe://.+/ns/n\.s/(.+/|)sa/cert-manager\.io(/.+)?")))]]
    assert principals("when: [{key: source.serviceAccount, values: [a.b]}]")[0][0]["orIds"]["ids"][0] == named(
        **regex(r"spiffe://.+/ns/own/(.+/|)sa/a\.b(/.+)?")
    )


REQUEST_PRINCIPALS = [
    ("https://i.com/s", {"exact": "https://i.com"}, {"exact": "s"}),
    ("*", regex(".+"), regex(".+")),
    ("i/*", {"exact": "i"}, regex(".+")),
    ("i/s*", {"exact": "i"}, {"prefix": "s"}),
    ("i*", {"prefix": "i"}, regex(".+")),
    ("*/s", regex(".+"), {"exact": "s"}),
    ("*.com/s", {"suffix": ".com"}, {"exact": "s"}),
    ("*s", regex(".+"), {"suffix": "s"}),
    ("i", {"exact": "i"}, {"exact": ""}),
]


@pytest.mark.parametrize(("value", "issuer", "subject"), REQUEST_PRINCIPALS, ids=[row[0] for row in REQUEST_PRINCIPALS])
def test_a_principal_of_a_request_is_issuer_and_subject_of_its_token(value: str, issuer: Any, subject: Any) -> None:
    expected = {"andIds": {"ids": [text_claim("iss", **issuer), text_claim("sub", **subject)]}}
    assert principals(f"from: [{{source: {{requestPrincipals: ['{value}']}}}}]") == [[expected]]
    assert principals(f"when: [{{key: request.auth.principal, notValues: ['{value}']}}]") == [[{"notId": expected}]]


ONE, TWO = (
    {"stringMatch": {"exact": "a"}},
    {"orMatch": {"valueMatchers": [{"stringMatch": {"exact": "a"}}, {"stringMatch": {"prefix": "b"}}]}},
)
CONDITIONS = [
    ("request.auth.audiences", "[a]", claim("aud", value=listed(ONE))),
    ("request.auth.presenter", "[a, 'b*']", claim("azp", value=listed(TWO))),
    ("'request.auth.claims[g]'", "[a]", claim("g", value=listed(ONE))),
    ("'request.auth.claims[g][h.i]'", "[a]", claim("g", "h.i", value=listed(ONE))),
    ("'request.auth.claims[g[0]]'", "[a]", claim("g[0]", value=listed(ONE))),
    ("'request.headers[X-Role]'", "[a, '*']", any_of(header("X-Role", exact="a"), header("X-Role", present=True))),
    ("source.namespace", "[a]", any_of(named(**regex(".*/ns/a/.*")))),
    (
        "source.principal",
        "[td/ns/a/sa/b]",
        any_of(named(exact="spiffe://td/ns/a/sa/b"), named(exact="spiffe://old/ns/a/sa/b")),
    ),
    ("remote.ip", "[10.0.0.0/8]", any_of({"remoteIp": {"addressPrefix": "10.0.0.0", "prefixLen": 8}})),
]


@pytest.mark.parametrize(("key", "values", "expected"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_a_condition_on_who_asks(key: str, values: str, expected: Any) -> None:
    assert principals(f"when: [{{key: {key}, values: {values}}}]") == [[expected]]
    assert principals(f"when: [{{key: {key}, notValues: {values}}}]") == [[{"notId": expected}]]


METADATA = {"filter": "envoy.filters.http.lua", "path": [{"key": "tier"}]}
ENDS = [
    ("destination.ip", "[10.0.0.1]", one_of({"destinationIp": {"addressPrefix": "10.0.0.1", "prefixLen": 32}})),
    ("destination.port", "['80']", one_of({"destinationPort": 80})),
    ("connection.sni", "['*.com']", one_of({"requestedServerName": {"suffix": ".com"}})),
    ("'experimental.envoy.filters.http.lua[tier]'", "[a]", {"metadata": {**METADATA, "value": ONE}}),
    (
        "'experimental.envoy.filters.http.lua[tier]'",
        "['[a]']",
        {"metadata": {**METADATA, "value": {"listMatch": {"oneOf": ONE}}}},
    ),
]


@pytest.mark.parametrize(("key", "values", "expected"), ENDS, ids=[f"{row[0]} {row[1]}" for row in ENDS])
def test_a_condition_on_what_is_asked_for(key: str, values: str, expected: Any) -> None:
    assert permissions(f"when: [{{key: {key}, values: {values}}}]") == [[expected]]
    assert permissions(f"when: [{{key: {key}, notValues: {values}}}]") == [[{"notRule": expected}]]


def test_a_rule_that_asks_nothing_is_met_by_everything() -> None:
    assert permissions("{}") == [[ANY]]
    assert principals("{}") == [[ANY]]


def test_conditions_hold_for_every_source_and_operation() -> None:
    rule = (
        "{from: [{source: {namespaces: [a]}}, {source: {namespaces: [b]}}], to: [{operation: {methods: [GET]}}], "
        "when: [{key: source.ip, values: [10.0.0.1]}, {key: destination.port, values: ['1']}]}"
    )
    address = any_of({"directRemoteIp": {"addressPrefix": "10.0.0.1", "prefixLen": 32}})
    assert [ids[1] for ids in principals(rule)] == [address, address]
    assert permissions(rule) == [[one_of(header(":method", exact="GET")), one_of({"destinationPort": 1})]]


# -- what cannot be said ---------------------------------------------------------------------------------------------------

FOR_HTTP = [
    "to: [{operation: {hosts: [a]}}]",
    "to: [{operation: {notHosts: [a]}}]",
    "to: [{operation: {methods: [GET]}}]",
    "to: [{operation: {paths: [/a]}}]",
    "to: [{operation: {notPaths: ['/{*}']}}]",
    "from: [{source: {requestPrincipals: ['*']}}]",
    "from: [{source: {notRequestPrincipals: ['*']}}]",
    "when: [{key: 'request.headers[a]', values: [a]}]",
    "when: [{key: 'request.auth.claims[a]', notValues: [a]}]",
    "when: [{key: request.auth.audiences, values: [a]}]",
    "when: [{key: request.auth.presenter, values: [a]}]",
]
TOO_LONG = "a" * MAX_LENGTH
UNSAYABLE = [
    "from: [{source: {ipBlocks: [a]}}]",
    "from: [{source: {notRemoteIpBlocks: [10.0.0.0/8, a]}}]",
    "to: [{operation: {ports: [a]}}]",
    "to: [{operation: {ports: ['70000']}}]",
    "to: [{operation: {paths: ['{*}']}}]",
    f"to: [{{operation: {{paths: ['/{{*}}/{TOO_LONG}']}}}}]",
    "when: [{key: 'request.headers[a b]', values: [a]}]",
    "when: [{key: 'request.headers', values: [a]}]",
    "when: [{key: 'request.auth.claims[]', values: [a]}]",
    "when: [{key: 'request.auth.claims[a][]', values: [a]}]",
    "when: [{key: source.labels, values: [a]}]",
    "when: [{key: destination.ip, values: [a]}]",
    "when: [{key: 'experimental.envoy.filters.a', values: [a]}]",
]
SIZES = [
    f"from: [{{source: {{namespaces: [{TOO_LONG}]}}}}]",
    f"from: [{{source: {{serviceAccounts: [{TOO_LONG}]}}}}]",
    f"from: [{{source: {{principals: ['*{TOO_LONG}']}}}}]",
    f"from: [{{source: {{notTrustDomains: ['{TOO_LONG}*']}}}}]",
]
OF_TWO = "{{from: [{{source: {{namespaces: [a]}}}}], {}}}"


@pytest.mark.parametrize("rule", FOR_HTTP)
def test_on_tcp_a_rule_that_allows_what_only_http_has_is_left_out(rule: str) -> None:
    assert built(rule, tcp=True) is None
    assert built(rule) is not None


@pytest.mark.parametrize("rule", FOR_HTTP)
def test_on_tcp_a_rule_that_denies_what_only_http_has_denies_without_asking_for_it(rule: str) -> None:
    assert (permissions(rule, tcp=True, allows=False), principals(rule, tcp=True, allows=False)) == ([[ANY]], [[ANY]])


@pytest.mark.parametrize("rule", UNSAYABLE)
def test_what_cannot_be_compiled_allows_nothing_and_denies_more(rule: str) -> None:
    assert built(rule) is None
    assert (permissions(rule, allows=False), principals(rule, allows=False)) == ([[ANY]], [[ANY]])


@pytest.mark.parametrize("rule", SIZES, ids=["namespace", "account", "principal", "trust domain"])
def test_istio_security_2026_006_a_pattern_that_is_too_large_allows_nothing_and_denies_more(rule: str) -> None:
    assert built(rule) is None
    assert principals(rule, allows=False) == [[ANY]]


def test_one_source_that_cannot_be_said_takes_the_whole_rule_with_it() -> None:
    assert built("from: [{source: {namespaces: [a]}}, {source: {ipBlocks: [x]}}]") is None


@pytest.mark.parametrize(
    ("text", "path"),
    [("[a]", ("a",)), ("[a][b]", ("a", "b")), ("[a[b]]", ("a[b]",)), ("[]", ()), ("a", ()), ("[a][]", ())],
)
def test_the_path_of_a_claim(text: str, path: tuple[str, ...]) -> None:
    assert claim_path(text) == path


# -- trust domains ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "named_in"),
    [
        ("td/ns/a/sa/b", ["td/ns/a/sa/b", "old/ns/a/sa/b"]),
        ("old/ns/a/sa/b", ["td/ns/a/sa/b", "old/ns/a/sa/b"]),
        ("cluster.local/ns/a/sa/b", ["td/ns/a/sa/b", "old/ns/a/sa/b"]),
        ("far/ns/a/sa/b", ["far/ns/a/sa/b"]),
        ("*/ns/a/sa/b", ["*/ns/a/sa/b"]),
        ("*d/ns/a/sa/b", ["*d/ns/a/sa/b"]),
        ("*t/ns/a/sa/b", ["*t/ns/a/sa/b"]),
        ("t*/ns/a/sa/b", ["td/ns/a/sa/b", "old/ns/a/sa/b"]),
        ("td/ns/a/*", ["td/ns/a/*"]),
        ("tx/ns/a/sa/b", ["tx/ns/a/sa/b"]),
        ("*x/ns/a/sa/b", ["*x/ns/a/sa/b"]),
        ("x*/ns/a/sa/b", ["x*/ns/a/sa/b"]),
        ("td", ["td"]),
    ],
)
def test_a_principal_of_the_mesh_is_one_of_its_aliases_too(principal: str, named_in: list[str]) -> None:
    assert in_all_domains([principal], DOMAINS) == named_in


def test_a_trust_domain_of_the_mesh_brings_the_others_once() -> None:
    assert with_aliases(["far", "old", "td"], DOMAINS) == ["far", "td", "old"]
