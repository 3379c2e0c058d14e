"""What is said of values that are not of their field's type, in the words that users read."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.decode import decode_document
from pilot.ingest.shape import checked


def said(kind: str, spec: Any, version: str = "networking.istio.io/v1") -> list[tuple[str, str]]:
    decoded = decode_document(
        {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": "shop"}, "spec": spec}
    )
    return [(problem.path, problem.message) for problem in decoded.problems]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (80, "expected text, got a whole number (80): quote it"),
        (1.5, "expected text, got a number (1.5): quote it"),
        (True, "expected text, got true: quote it"),
        (False, "expected text, got false: quote it"),
        ([], "expected text, got a list"),
        ({}, "expected text, got a mapping"),
    ],
)
def test_what_stands_where_text_is_expected_is_named(value: Any, message: str) -> None:
    assert said("Sidecar", {"egress": [{"hosts": [value]}]}) == [("spec.egress[0].hosts[0]", message)]


def test_text_in_the_place_of_a_mapping_is_not_to_be_quoted() -> None:
    assert said("Sidecar", {"egress": ["x"]}) == [("spec.egress[0]", "expected a mapping, got text")]


def test_a_whole_number_is_taken_where_a_fraction_may_be() -> None:
    route = {
        "fault": {"abort": {"httpStatus": 500, "percentage": {"value": 50}}},
        "route": [{"destination": {"host": "a"}}],
        "nobodyKnows": 1,
    }
    assert [path for path, _ in said("VirtualService", {"hosts": ["a"], "http": [route]})] == [
        "spec.http[0].nobodyKnows"
    ]


def test_keys_that_are_no_text_are_named() -> None:
    assert said("Sidecar", {1: 2}) == [("spec[1]", "expected text as key, got a whole number (1)")]
    assert said("Sidecar", {"workloadSelector": {"labels": {True: "x"}}}) == [
        ("spec.workloadSelector.labels[True]", "expected text as key, got true: quote it")
    ]


def test_fields_of_the_mesh_config_have_either_spelling() -> None:
    plain, problems = checked({"ingress_class": "x", "trustDomain": "y", "root_namespace": None}, MeshConfig)
    assert (plain, problems) == ({"ingressClass": "x", "trustDomain": "y"}, [])
    _, (problem,) = checked({"ingress_class": "x"}, MeshConfig, any_spelling=False)
    assert (problem.code, problem.path) == ("unknown-field", "ingress_class")
