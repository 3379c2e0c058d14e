"""Ownership labels of installed objects."""

from __future__ import annotations

import pytest

from deploy.operator.errors import SettingsError
from pilot.install.installation_labels import (
    COMPONENT,
    OWNER,
    OWNER_NAMESPACE,
    REVISION,
    OperatorOwner,
    owner_of,
    with_ownership_labels,
)
from tests.unit.install.labelled_cluster import Plain


@pytest.mark.parametrize(
    ("operator", "owner", "selector"),
    [
        (
            {},
            OperatorOwner("unknown", "", "default"),
            f"{COMPONENT},{OWNER}=unknown,{REVISION}=default,!{OWNER_NAMESPACE}",
        ),
        (
            {"metadata": {"name": "mesh", "namespace": "istio-system"}, "spec": {"values": {"revision": "r2"}}},
            OperatorOwner("mesh", "istio-system", "r2"),
            f"{COMPONENT},{OWNER}=mesh,{OWNER_NAMESPACE}=istio-system,{REVISION}=r2",
        ),
        (
            {"metadata": None, "spec": {"values": None}},
            OperatorOwner("unknown", "", "default"),
            f"{COMPONENT},{OWNER}=unknown,{REVISION}=default,!{OWNER_NAMESPACE}",
        ),
    ],
)
def test_owner_of_an_operator(operator: Plain, owner: OperatorOwner, selector: str) -> None:
    assert owner_of(operator) == owner
    assert owner.selector() == selector


@pytest.mark.parametrize(
    ("name", "is_valid"), [("a" * 63, True), ("a" * 64, False), ("a-", False), ("A.b_c-9", True), ("ä", False)]
)
def test_operator_name_must_be_a_label_value(name: str, is_valid: bool) -> None:
    if is_valid:
        assert owner_of({"metadata": {"name": name}}).name == name
        return
    with pytest.raises(
        SettingsError,
        match=rf"^metadata.name: {name} is not a valid label value; use at most 63 letters, digits, -, _ and .$",
    ):
        owner_of({"metadata": {"name": name}})


@pytest.mark.parametrize("labels", [None, {"app": "istiod", COMPONENT: "old"}])
def test_ownership_labels_are_added(labels: dict[str, str] | None) -> None:
    plain = {"kind": "Service", "metadata": {"name": "istiod", "labels": labels}}
    labels_after = with_ownership_labels(plain, OperatorOwner("mesh", "", "r2"), "Pilot")["metadata"]["labels"]
    assert labels_after.pop("operator.istio.io/version")
    ownership_labels = {COMPONENT: "Pilot", "operator.istio.io/managed": "Reconcile", OWNER: "mesh", REVISION: "r2"}
    assert labels_after == {**({"app": "istiod"} if labels else {}), **ownership_labels}
    assert plain["metadata"]["labels"] is labels
