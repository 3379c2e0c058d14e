"""Security policies with unknown fields: they stay in force, and are at least as strict as intended."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pilot.config.object import Object
from pilot.config.problem import Severity
from pilot.ingest.decode import decode_document
from testing.mesh.objects import make

SPACE = "source: {namespaces: [a]}"
GET = "operation: {methods: [GET]}"


def decode(kind: str, spec: str) -> tuple[Object[Any], list[tuple[str, str]]]:
    """Return the object in force, and the codes and paths of the warnings about it. There are no errors."""
    decoded = decode_document(make(kind, "x", spec, "a"))
    warnings = [p for p in decoded.problems if p.severity is not Severity.INFO]
    assert {p.severity for p in warnings} == {Severity.WARNING}
    (entry,) = decoded.entries
    return entry.object, [(p.code, p.path) for p in warnings]


def equivalent(kind: str, spec: str) -> Any:
    """Return the spec of an object without unknown fields."""
    decoded = decode_document(make(kind, "x", spec, "a"))
    return decoded.entries[0].object.spec


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        (f"{{from: [{{{SPACE}}}], wher: 1}}", "wher"),
        ("{from: [{source: {namespaces: [a], labels: [b]}}]}", "from[0].source.labels"),
        ("{from: [{source: {labels: [b]}}]}", "from[0].source.labels"),
        (f"{{from: [{{{SPACE}, cluster: [b]}}]}}", "from[0].cluster"),
        ("{to: [{operation: {grpcMethods: [b]}}]}", "to[0].operation.grpcMethods"),
        ("{when: [{key: source.ip, values: [1.1.1.1], regexes: [b]}]}", "when[0].regexes"),
    ],
)
def test_allow_rule_with_an_unknown_field_allows_nothing(rule: str, path: str) -> None:
    policy, problems = decode("AuthorizationPolicy", f"{{rules: [{rule}, {{to: [{{{GET}}}]}}]}}")
    assert policy.spec == equivalent("AuthorizationPolicy", f"{{rules: [{{to: [{{{GET}}}]}}]}}")
    assert problems == [("fails-closed", "spec.rules[0]"), ("unknown-field", f"spec.rules[0].{path}")]


@pytest.mark.parametrize("action", ["DENY", "AUDIT", "CUSTOM"])
@pytest.mark.parametrize(
    ("rule", "wider"),
    [
        ("{to: [{operation: {methods: [GET], grpc: [b]}}]}", "{to: [{operation: {methods: [GET]}}]}"),
        (f"{{to: [{{operation: {{grpc: [b]}}}}, {{{GET}}}], when: []}}", "{}"),
        (f"{{to: [{{grpc: 1, {GET}}}]}}", "{}"),
        ("{from: [{source: {labels: [b]}}]}", "{}"),
        ("{from: [{source: {ipBlocks: [1.1.1.1], labels: [b]}}]}", "{from: [{source: {ipBlocks: [1.1.1.1]}}]}"),
        ("{from: [{labels: [b]}]}", "{}"),
        ("{when: [{key: source.ip, values: [1.1.1.1], regexes: [b]}]}", "{}"),
        ("{when: [{key: source.ip, regexes: [b]}]}", "{}"),
        ("{wher: []}", "{}"),
    ],
)
def test_rule_that_denies_matches_at_least_as_much(action: str, rule: str, wider: str) -> None:
    provider = ", provider: {name: p}" if action == "CUSTOM" else ""
    policy, problems = decode("AuthorizationPolicy", f"{{action: {action}{provider}, rules: [{rule}]}}")
    assert policy.spec == equivalent("AuthorizationPolicy", f"{{action: {action}{provider}, rules: [{wider}]}}")
    assert problems[0] == ("fails-closed", "spec.rules[0]")


@pytest.mark.parametrize(
    "scope", ["selecto: {}", "targetRefs: [{kind: Service, name: s, port: 1}]", "selector: {matchExpressions: []}"]
)
def test_unknown_field_beside_rules(scope: str) -> None:
    """The field may limit the workloads."""
    rules = f"rules: [{{to: [{{{GET}}}]}}]"
    allow, problems = decode("AuthorizationPolicy", f"{{{scope}, {rules}}}")
    assert (allow.spec.action, allow.spec.rules) == ("ALLOW", ())
    assert problems[0] == ("fails-closed", "spec")
    deny, _ = decode("AuthorizationPolicy", f"{{action: DENY, {scope}, {rules}}}")
    assert deny.spec.rules == equivalent("AuthorizationPolicy", f"{{{rules}}}").rules


def test_denial_whose_rules_are_unknown_denies_everything() -> None:
    policy, _ = decode("AuthorizationPolicy", "{action: DENY, conditions: [a]}")
    assert policy.spec == equivalent("AuthorizationPolicy", "{action: DENY, rules: [{}]}")
    policy, _ = decode("AuthorizationPolicy", "{action: CUSTOM, provider: {service: a}, rules: [{}]}")
    assert policy.spec == equivalent("AuthorizationPolicy", "{action: DENY, rules: [{}]}")


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ("{jwtRules: [{issuer: a, jwksUri: 'https://a.com/k', claims: {a: b}}, {issuer: b}]}", [True, False]),
        ("{jwtRules: [{issuer: a, fromHeaders: [{name: a, scheme: b}]}, {issuer: b}]}", [True, False]),
        ("{jwtRules: [{issuers: [a], jwksUri: 'https://a.com/k'}]}", [True]),
        ("{selectr: {}, jwtRules: [{issuer: a}, {issuer: b}]}", [True, True]),
    ],
)
def test_token_rule_with_an_unknown_field_accepts_no_token(spec: str, closed: list[bool]) -> None:
    policy, problems = decode("RequestAuthentication", spec)
    assert [(rule.jwks, rule.jwks_uri) == ('{"keys": []}', "") for rule in policy.spec.jwt_rules] == closed
    assert [path for code, path in problems if code == "fails-closed"] == [
        f"spec.jwtRules[{n}]" for n, is_closed in enumerate(closed) if is_closed
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{mtls: {mod: STRICT}}", "{mtls: {mode: STRICT}}"),
        ("{mtls: {mode: PERMISSIVE, peers: [a]}}", "{mtls: {mode: PERMISSIVE}}"),
        ("{selectors: [a], mtls: {mode: DISABLE}}", "{mtls: {mode: STRICT}}"),
        ("{mtl: {}}", "{mtls: {mode: STRICT}}"),
        (
            "{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {x: 1, y: 1}, 81: {mode: DISABLE, x: 1}}}",
            "{selector: {matchLabels: {a: b}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {80: {mode: STRICT}, 81: {mode: DISABLE}}}",
        ),
        (
            "{selector: {matchExpressions: [a]}, portLevelMtls: {80: {mode: DISABLE}}}",
            "{selector: {}, mtls: {mode: STRICT}}",
        ),
    ],
)
def test_mutual_tls_is_required_where_an_unknown_field_may_require_it(spec: str, expected: str) -> None:
    policy, problems = decode("PeerAuthentication", spec)
    assert policy.spec == equivalent("PeerAuthentication", expected)
    assert "unknown-field" in dict(problems)


def test_object_with_a_thousand_unknown_fields_is_rejected() -> None:
    many = {f"field{n}": n for n in range(2000)}
    plain = {**make("AuthorizationPolicy", "x", "{}", "a"), "spec": {"action": "DENY", "rules": [{}], **many}}
    decoded = decode_document(plain)
    assert not decoded.entries
    assert len(decoded.problems) < 1000


def test_fields_in_snake_case_are_known() -> None:
    spec = yaml.safe_dump({"jwt_rules": [{"issuer": "a", "jwks_uri": "https://a.com/k", "from_params": ["p"]}]})
    decoded = decode_document(make("RequestAuthentication", "x", spec, "a"))
    assert not decoded.problems
    assert decoded.entries[0].object.spec.jwt_rules[0].jwks_uri == "https://a.com/k"
