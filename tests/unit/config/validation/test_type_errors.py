"""Messages for values of the wrong type."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.decode import decode_document
from pilot.ingest.shape import checked


def problems_of(kind: str, spec: Any, version: str = "networking.istio.io/v1") -> list[tuple[str, str]]:
    decoded = decode_document(
        {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": "shop"}, "spec": spec}
    )
    return [(problem.path, problem.message) for problem in decoded.problems]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (80, "expected a string, got an integer (80): quote it"),
        (1.5, "expected a string, got a number (1.5): quote it"),
        (True, "expected a string, got true: quote it"),
        (False, "expected a string, got false: quote it"),
        ([], "expected a string, got a list"),
        ({}, "expected a string, got a mapping"),
    ],
)
def test_wrong_type_instead_of_text(value: Any, message: str) -> None:
    assert problems_of("Sidecar", {"egress": [{"hosts": [value]}]}) == [("spec.egress[0].hosts[0]", message)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("90%", "expected an integer, got '90%': write 90"),
        ("many", "expected an integer, got 'many'"),
        ("1.5", "expected an integer, got '1.5'"),
        ("90", "expected an integer, got a string: remove the quotes"),
    ],
)
def test_text_instead_of_an_integer(value: str, message: str) -> None:
    route = {"destination": {"host": "a"}, "weight": value}
    problems = problems_of("VirtualService", {"hosts": ["a"], "http": [{"route": [route]}]})
    assert problems == [("spec.http[0].route[0].weight", message)]


def test_text_instead_of_a_mapping() -> None:
    assert problems_of("Sidecar", {"egress": ["x"]}) == [("spec.egress[0]", "expected a mapping, got a string")]


def test_integer_is_accepted_for_a_float() -> None:
    route = {
        "fault": {"abort": {"httpStatus": 500, "percentage": {"value": 50}}},
        "route": [{"destination": {"host": "a"}}],
        "nobodyKnows": 1,
    }
    assert [path for path, _ in problems_of("VirtualService", {"hosts": ["a"], "http": [route]})] == [
        "spec.http[0].nobodyKnows"
    ]


def test_keys_that_are_not_text() -> None:
    assert problems_of("Sidecar", {1: 2}) == [("spec[1]", "expected a string as key, got an integer (1)")]
    assert problems_of("Sidecar", {"workloadSelector": {"labels": {True: "x"}}}) == [
        ("spec.workloadSelector.labels[True]", "expected a string as key, got true: quote it")
    ]


def test_mesh_config_accepts_both_spellings() -> None:
    plain, problems = checked({"ingress_class": "x", "trustDomain": "y", "root_namespace": None}, MeshConfig)
    assert (plain, problems) == ({"ingressClass": "x", "trustDomain": "y"}, [])
    _, (problem,) = checked({"ingress_class": "x", "ingressClass": "y"}, MeshConfig)
    assert (problem.code, problem.message) == ("exclusive-fields", "only one spelling of ingressClass may be set")


@pytest.mark.parametrize(
    ("kind", "spec", "path", "hint"),
    [
        (
            "VirtualService",
            {"hosts": ["a"], "http": [{"match": [{"uri": "/api"}]}]},
            "spec.http[0].match[0].uri",
            "expected a mapping, got a string: write {exact: /api}, {prefix: /api} or {regex: /api}",
        ),
        (
            "PeerAuthentication",
            {"mtls": "STRICT"},
            "spec.mtls",
            "expected a mapping, got a string: write {mode: STRICT}",
        ),
        (
            "PeerAuthentication",
            {"selector": {"app": "web"}},
            "spec.selector.app",
            "unknown field: it is ignored; write matchLabels: {app: web}",
        ),
        (
            "DestinationRule",
            {"host": "a", "subsets": [{"name": "v1", "version": "v1"}]},
            "spec.subsets[0].version",
            "unknown field: it is ignored; write labels: {version: v1}",
        ),
        (
            "VirtualService",
            {"hosts": ["a"], "http": [[{"route": [{"destination": {"host": "a"}}]}]]},
            "spec.http[0]",
            "expected a mapping, got a list: remove one - before route",
        ),
        (
            "VirtualService",
            {"hosts": ["a"], "http": [{"route": [{"destination": [{"host": "a"}]}]}]},
            "spec.http[0].route[0].destination",
            "expected a mapping, got a list: remove one - before host",
        ),
        (
            "VirtualService",
            {"hosts": ["a"], "http": [{"http": [{"route": [{"destination": {"host": "a"}}]}]}]},
            "spec.http[0].http",
            "unknown field: it is ignored; it is in the list http itself: remove this line, and indent its items less",
        ),
        ("VirtualService", {"hosts": "a"}, "spec.hosts", "expected a list, got a string: write [a]"),
        (
            "Sidecar",
            {"egress": {"hosts": ["*/*"]}},
            "spec.egress",
            "expected a list, got a mapping: begin each item with -",
        ),
        (
            "VirtualService",
            {"hosts": ["a"], "http": [{"route": [{"destination": {"host": "a", "weight": 1}}]}]},
            "spec.http[0].route[0].destination.weight",
            "unknown field: it is ignored; it is a field of http[0].route[0]: check the indentation",
        ),
        (
            "AuthorizationPolicy",
            {"rules": [{"from": [{"principals": ["a"]}]}]},
            "spec.rules[0].from[0].principals",
            "unknown field: it is ignored; did you mean source.principals?",
        ),
    ],
)
def test_right_form_is_suggested(kind: str, spec: Any, path: str, hint: str) -> None:
    group = "security" if kind in ("PeerAuthentication", "AuthorizationPolicy") else "networking"
    assert (path, hint) in problems_of(kind, spec, f"{group}.istio.io/v1")


def test_wrapped_mesh_config() -> None:
    _, problems = checked({"meshConfig": {"trustDomain": "x"}}, MeshConfig)
    hint = "unknown field; its fields belong one level higher: remove this line and its indentation"
    assert [(problem.path, problem.message) for problem in problems] == [("meshConfig", hint)]


@pytest.mark.parametrize(
    ("rule", "path", "message"),
    [
        (
            {"matches": [{"path": {"value": "api"}}]},
            "matches[0].path.value",
            "'api' matches no request, because paths begin with /; write /api",
        ),
        ({"matches": [{"path": {"type": "RegularExpression", "value": "a.*"}}]}, "", ""),
        (
            {"filters": [{"type": "URLRewrite"}]},
            "filters[0].type",
            "the filter has no effect without its field urlRewrite",
        ),
        ({"filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "a"}}]}, "", ""),
    ],
)
def test_rules_of_routes_without_effect(rule: dict[str, Any], path: str, message: str) -> None:
    problems = problems_of("HTTPRoute", {"rules": [rule]}, "gateway.networking.k8s.io/v1")
    assert problems == ([(f"spec.rules[0].{path}", message)] if path else [])
