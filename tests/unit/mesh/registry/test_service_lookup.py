"""Lookup of the service for a route destination."""

from __future__ import annotations

import pytest

from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_lookup import destination_ref
from testing.mesh.objects import make, world

HOST = "x.example"


def entry(namespace: str, exported: str = "'*'") -> dict[str, object]:
    return make(
        "ServiceEntry",
        "x",
        f"{{hosts: [{HOST}], ports: [{{number: 80, name: http}}], resolution: DNS, exportTo: [{exported}]}}",
        namespace,
    )


@pytest.mark.parametrize(
    ("owner", "viewer", "expected"),
    [("a", "a", "a"), ("a", "c", "b"), ("b", "c", "b"), ("b", "a", "b"), ("c", "a", "a"), ("c", "c", "b")],
)
def test_destination_is_that_of_the_owner_if_visible_to_the_router(owner: str, viewer: str, expected: str) -> None:
    db = world(entry("a", "."), entry("b")).mesh
    assert destination_ref(db, HOST, owner, viewer) == ServiceRef(HOST, expected)
    assert destination_ref(db, "none.example", owner, viewer) is None
