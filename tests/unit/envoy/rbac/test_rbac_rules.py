"""Translation of AuthorizationPolicy rules to Envoy RBAC policies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from google.protobuf import json_format

from pilot.config.security.authorization_policy import Rule
from pilot.derive import run_steps
from pilot.envoy.rbac.principal import RuleContext, claim_path, in_all_domains, with_aliases
from pilot.envoy.rbac.rbac_rules import build_rule
from pilot.lib.regex import MAX_LENGTH

DOMAINS = ("td", "old")
ANY = {"any": True}


def policy_fields(rule: str, tcp: bool = False, allows: bool = True, domains: tuple[str, ...] = DOMAINS) -> Any:
    """Return the RBAC policy of a rule as plain data, or None if the rule is dropped."""
    context = RuleContext("own", domains, tcp)
    policy = run_steps(build_rule(msgspec.convert(yaml.safe_load(rule), Rule), context, allows))
    return json_format.MessageToDict(policy) if policy is not None else None


def permissions(rule: str, **options: Any) -> Any:
    return [p["andRules"]["rules"] for p in policy_fields(rule, **options)["permissions"]]


def principals(rule: str, **options: Any) -> Any:
    return [p["andIds"]["ids"] for p in policy_fields(rule, **options)["principals"]]


def or_rules(*matches: Any) -> Any:
    return {"orRules": {"rules": list(matches)}}


def or_ids(*matches: Any) -> Any:
    return {"orIds": {"ids": list(matches)}}


def header(name: str, **match: Any) -> Any:
    return {
        "header": {"name": name, **({"stringMatch": match} if match != {"present": True} else {"presentMatch": True})}
    }


def principal_name(**match: Any) -> Any:
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


def list_or_value(value: Any) -> Any:
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
def test_operations(operation: str, expected: Any) -> None:
    assert permissions(f"to: [{{operation: {{{operation}}}}}]") == [[or_rules(expected)]]
    field = operation[0].upper() + operation[1:]
    assert permissions(f"to: [{{operation: {{not{field}}}}}]") == [[{"notRule": or_rules(expected)}]]


@pytest.mark.parametrize(
    ("template", "expected"), [("/a/{*}", "/a/*"), ("/{*}/b/{**}", "/*/b/**"), ("/{**}/end", "/**/end")]
)
def test_path_templates(template: str, expected: str) -> None:
    template_match = permissions(f"to: [{{operation: {{paths: ['{template}']}}}}]")[0][0]["orRules"]["rules"][0][
        "uriTemplate"
    ]
    assert template_match["name"] == "uri-template"
    assert template_match["typedConfig"]["pathTemplate"] == expected


SOURCES = [
    ("principals: [far/ns/a/sa/b]", [principal_name(exact="spiffe://far/ns/a/sa/b")]),
    (
        "principals: [td/ns/a/sa/b]",
        [principal_name(exact="spiffe://td/ns/a/sa/b"), principal_name(exact="spiffe://old/ns/a/sa/b")],
    ),
    (
        "principals: [cluster.local/ns/a/sa/b]",
        [principal_name(exact="spiffe://td/ns/a/sa/b"), principal_name(exact="spiffe://old/ns/a/sa/b")],
    ),
    ("principals: ['*/ns/a.b/sa/c']", [principal_name(**regex(r"spiffe://.*/ns/a\.b/sa/c"))]),
    ("principals: ['td/ns/a/*']", [principal_name(prefix="spiffe://td/ns/a/")]),
    ("principals: ['*']", [principal_name(**regex(".+"))]),
    ("namespaces: [a]", [principal_name(**regex(".*/ns/a/.*"))]),
    ("namespaces: ['a*b.']", [principal_name(**regex(r".*/ns/a.*b\./.*"))]),
    ("serviceAccounts: [a]", [principal_name(**regex("spiffe://.+/ns/own/(.+/|)sa/a(/.+)?"))]),
    ("serviceAccounts: [x/a]", [principal_name(**regex("spiffe://.+/ns/x/(.+/|)sa/a(/.+)?"))]),
    ("trustDomains: [far]", [principal_name(prefix="spiffe://far/")]),
    ("trustDomains: [old]", [principal_name(prefix="spiffe://td/"), principal_name(prefix="spiffe://old/")]),
    ("trustDomains: ['*']", [principal_name(prefix="spiffe://")]),
    ("trustDomains: ['*.a.com']", [principal_name(**regex(r"spiffe://[^/]*\.a\.com/.*"))]),
    ("ipBlocks: [10.1.2.3/8]", [{"directRemoteIp": {"addressPrefix": "10.1.2.3", "prefixLen": 8}}]),
    ("ipBlocks: ['::1']", [{"directRemoteIp": {"addressPrefix": "::1", "prefixLen": 128}}]),
    ("remoteIpBlocks: [10.1.2.3]", [{"remoteIp": {"addressPrefix": "10.1.2.3", "prefixLen": 32}}]),
]


@pytest.mark.parametrize(("source", "expected"), SOURCES, ids=[row[0] for row in SOURCES])
@pytest.mark.parametrize("tcp", [False, True], ids=["requests", "connections"])
def test_sources(source: str, expected: Any, tcp: bool) -> None:
    assert principals(f"from: [{{source: {{{source}}}}}]", tcp=tcp) == [[or_ids(*expected)]]
    field = source[0].upper() + source[1:]
    assert principals(f"from: [{{source: {{not{field}}}}}]", tcp=tcp) == [[{"notId": or_ids(*expected)}]]


def test_cve_2026_39350_dots_are_escaped() -> None:
    ids = principals("from: [{source: {serviceAccounts: [n.s/cert-manager.io]}}]")
    assert ids == [[or_ids(principal_name(**regex(r"spiffe://.+/ns/n\.s/(.+/|)sa/cert-manager\.io(/.+)?")))]]
    assert principals("when: [{key: source.serviceAccount, values: [a.b]}]")[0][0]["orIds"]["ids"][0] == principal_name(
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
def test_request_principals(value: str, issuer: Any, subject: Any) -> None:
    expected = {"andIds": {"ids": [text_claim("iss", **issuer), text_claim("sub", **subject)]}}
    assert principals(f"from: [{{source: {{requestPrincipals: ['{value}']}}}}]") == [[expected]]
    assert principals(f"when: [{{key: request.auth.principal, notValues: ['{value}']}}]") == [[{"notId": expected}]]


ONE, TWO = (
    {"stringMatch": {"exact": "a"}},
    {"orMatch": {"valueMatchers": [{"stringMatch": {"exact": "a"}}, {"stringMatch": {"prefix": "b"}}]}},
)
CONDITIONS = [
    ("request.auth.audiences", "[a]", claim("aud", value=list_or_value(ONE))),
    ("request.auth.presenter", "[a, 'b*']", claim("azp", value=list_or_value(TWO))),
    ("'request.auth.claims[g]'", "[a]", claim("g", value=list_or_value(ONE))),
    ("'request.auth.claims[g][h.i]'", "[a]", claim("g", "h.i", value=list_or_value(ONE))),
    ("'request.auth.claims[g[0]]'", "[a]", claim("g[0]", value=list_or_value(ONE))),
    ("'request.headers[X-Role]'", "[a, '*']", or_ids(header("X-Role", exact="a"), header("X-Role", present=True))),
    ("source.namespace", "[a]", or_ids(principal_name(**regex(".*/ns/a/.*")))),
    (
        "source.principal",
        "[td/ns/a/sa/b]",
        or_ids(principal_name(exact="spiffe://td/ns/a/sa/b"), principal_name(exact="spiffe://old/ns/a/sa/b")),
    ),
    ("remote.ip", "[10.0.0.0/8]", or_ids({"remoteIp": {"addressPrefix": "10.0.0.0", "prefixLen": 8}})),
]


@pytest.mark.parametrize(("key", "values", "expected"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_source_conditions(key: str, values: str, expected: Any) -> None:
    assert principals(f"when: [{{key: {key}, values: {values}}}]") == [[expected]]
    assert principals(f"when: [{{key: {key}, notValues: {values}}}]") == [[{"notId": expected}]]


METADATA = {"filter": "envoy.filters.http.lua", "path": [{"key": "tier"}]}
DESTINATION_CONDITIONS = [
    ("destination.ip", "[10.0.0.1]", or_rules({"destinationIp": {"addressPrefix": "10.0.0.1", "prefixLen": 32}})),
    ("destination.port", "['80']", or_rules({"destinationPort": 80})),
    ("connection.sni", "['*.com']", or_rules({"requestedServerName": {"suffix": ".com"}})),
    ("'experimental.envoy.filters.http.lua[tier]'", "[a]", {"metadata": {**METADATA, "value": ONE}}),
    (
        "'experimental.envoy.filters.http.lua[tier]'",
        "['[a]']",
        {"metadata": {**METADATA, "value": {"listMatch": {"oneOf": ONE}}}},
    ),
]


@pytest.mark.parametrize(
    ("key", "values", "expected"), DESTINATION_CONDITIONS, ids=[f"{row[0]} {row[1]}" for row in DESTINATION_CONDITIONS]
)
def test_destination_conditions(key: str, values: str, expected: Any) -> None:
    assert permissions(f"when: [{{key: {key}, values: {values}}}]") == [[expected]]
    assert permissions(f"when: [{{key: {key}, notValues: {values}}}]") == [[{"notRule": expected}]]


def test_empty_rule_matches_everything() -> None:
    assert permissions("{}") == [[ANY]]
    assert principals("{}") == [[ANY]]


def test_conditions_apply_to_every_source_and_operation() -> None:
    rule = (
        "{from: [{source: {namespaces: [a]}}, {source: {namespaces: [b]}}], to: [{operation: {methods: [GET]}}], "
        "when: [{key: source.ip, values: [10.0.0.1]}, {key: destination.port, values: ['1']}]}"
    )
    address = or_ids({"directRemoteIp": {"addressPrefix": "10.0.0.1", "prefixLen": 32}})
    assert [ids[1] for ids in principals(rule)] == [address, address]
    assert permissions(rule) == [[or_rules(header(":method", exact="GET")), or_rules({"destinationPort": 1})]]


# -- untranslatable rules --------------------------------------------------------------------------------------------------

HTTP_RULES = [
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
INVALID_RULES = [
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
OVERSIZED_RULES = [
    f"from: [{{source: {{namespaces: [{TOO_LONG}]}}}}]",
    f"from: [{{source: {{serviceAccounts: [{TOO_LONG}]}}}}]",
    f"from: [{{source: {{principals: ['*{TOO_LONG}']}}}}]",
    f"from: [{{source: {{notTrustDomains: ['{TOO_LONG}*']}}}}]",
]


@pytest.mark.parametrize("rule", HTTP_RULES)
def test_http_only_allow_rules_are_omitted_on_tcp(rule: str) -> None:
    assert policy_fields(rule, tcp=True) is None
    assert policy_fields(rule) is not None


@pytest.mark.parametrize("rule", HTTP_RULES)
def test_http_only_fields_of_deny_rules_match_everything_on_tcp(rule: str) -> None:
    assert (permissions(rule, tcp=True, allows=False), principals(rule, tcp=True, allows=False)) == ([[ANY]], [[ANY]])


@pytest.mark.parametrize("rule", INVALID_RULES)
def test_invalid_rules_allow_nothing_and_deny_everything(rule: str) -> None:
    assert policy_fields(rule) is None
    assert (permissions(rule, allows=False), principals(rule, allows=False)) == ([[ANY]], [[ANY]])


@pytest.mark.parametrize("rule", OVERSIZED_RULES, ids=["namespace", "account", "principal", "trust domain"])
def test_istio_security_2026_006_oversized_patterns(rule: str) -> None:
    assert policy_fields(rule) is None
    assert principals(rule, allows=False) == [[ANY]]


def test_one_invalid_source_drops_the_allow_rule() -> None:
    assert policy_fields("from: [{source: {namespaces: [a]}}, {source: {ipBlocks: [x]}}]") is None


@pytest.mark.parametrize(
    ("text", "path"),
    [("[a]", ("a",)), ("[a][b]", ("a", "b")), ("[a[b]]", ("a[b]",)), ("[]", ()), ("a", ()), ("[a][]", ())],
)
def test_claim_paths(text: str, path: tuple[str, ...]) -> None:
    assert claim_path(text) == path


# -- trust domains ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "expected"),
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
def test_trust_domain_aliases_of_principals(principal: str, expected: list[str]) -> None:
    assert in_all_domains([principal], DOMAINS) == expected


def test_trust_domain_aliases_are_added_once() -> None:
    assert with_aliases(["far", "old", "td"], DOMAINS) == ["far", "td", "old"]
