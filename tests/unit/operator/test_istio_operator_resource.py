"""Tests of decoded IstioOperators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.kube.object_client import ResourceKey, VersionedKind
from pilot.operator.istio_operator_resource import (
    FINALIZER,
    KIND,
    IstioOperatorResource,
    decode_istio_operator,
    istio_operator_of,
)

Plain = dict[str, Any]


def istio_operator(spec: Any = None, **metadata: Any) -> Plain:
    all_metadata = {"name": "mesh", "namespace": "istio-system", **metadata}
    return {
        "apiVersion": "install.istio.io/v1alpha1",
        "kind": "IstioOperator",
        "metadata": all_metadata,
        **({} if spec is None else {"spec": spec}),
    }


def test_decode_istio_operator() -> None:
    server_metadata = {"uid": "u", "generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}
    plain = istio_operator({"revision": "r1", "profile": "minimal"}, **server_metadata)
    resource = decode_istio_operator(json.dumps(plain).encode())
    assert resource == IstioOperatorResource("istio-system", "mesh", "u", 3, True, plain)
    assert resource.key == ResourceKey(
        VersionedKind("install.istio.io/v1alpha1", "IstioOperator"), "istio-system", "mesh"
    )
    assert (resource.spec_version, resource.revision, resource.finalizers) == (("u", 3), "r1", ["f"])
    assert resource.settings() == istio_operator({"revision": "r1", "profile": "minimal"})


def test_defaults_of_missing_fields() -> None:
    plain = {"metadata": {"name": "mesh", "generation": None, "annotations": None}, "spec": {"revision": None}}
    resource = istio_operator_of(plain)
    assert resource == IstioOperatorResource("", "mesh", "", 0, False, plain)
    assert (
        resource.spec_version,
        resource.revision,
        resource.finalizers,
        resource.is_managed_by(""),
        resource.is_managed_by("r1"),
    ) == (
        ("", 0),
        "",
        [],
        True,
        False,
    )
    assert istio_operator_of({"metadata": {"name": "mesh"}}).settings()["spec"] == {}
    assert istio_operator_of({"metadata": {"name": "mesh"}, "spec": "text"}).settings()["spec"] == "text"
    assert istio_operator_of({"metadata": {"name": "mesh"}, "spec": False}).settings()["spec"] is False


@pytest.mark.parametrize(
    ("revision", "annotations", "expected"),
    [
        ("", {}, {"": True, "r1": False}),
        ("r1", {}, {"": True, "r1": True, "r2": False}),
        ("r1", {"install.istio.io/ignoreReconcile": "true"}, {"": False, "r1": False, "r2": False}),
        ("r1", {"install.istio.io/ignoreReconcile": "false"}, {"": True, "r1": True, "r2": False}),
    ],
)
def test_operator_manages_its_revision_unless_ignored(
    revision: str, annotations: Plain, expected: dict[str, bool]
) -> None:
    resource = istio_operator_of(istio_operator({"revision": revision}, annotations=annotations))
    assert {operator_revision: resource.is_managed_by(operator_revision) for operator_revision in expected} == expected


def test_kind_and_finalizer() -> None:
    assert (KIND.api_version, KIND.name, FINALIZER) == (
        "install.istio.io/v1alpha1",
        "IstioOperator",
        "istio-finalizer.install.istio.io",
    )
