"""Random EnvoyFilter edits compared with a fresh mesh."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.edits.random_envoy_filters import apply_filter, filters, observe, start_mesh
from testing.mesh.objects import Plain
from testing.mesh.world import World

pytestmark = pytest.mark.timeout(600)


def check_edits(edits: list[Plain]) -> None:
    """Apply edits one by one to a mesh, and compare it with a fresh one after each."""
    world, nodes = start_mesh()
    before, objects = observe(world, nodes), dict[tuple[str, str], Plain]()
    for envoy_filter in edits:
        namespace = envoy_filter["metadata"]["namespace"]
        if not apply_filter(world, envoy_filter):
            continue
        objects[namespace, envoy_filter["metadata"]["name"]] = envoy_filter
        current = observe(world, nodes)
        assert not world.failures
        fresh, fresh_nodes = start_mesh()
        for item in objects.values():
            assert apply_filter(fresh, item)
        assert observe(fresh, fresh_nodes) == current
        if namespace != "istio-system":
            assert _others(before.resources, nodes, namespace) == _others(current.resources, nodes, namespace)
        before = current
    _check_removal(world, nodes, list(objects.values()))


def _others(resources: dict[str, dict[str, dict[str, bytes]]], nodes: dict[str, str], namespace: str) -> list[object]:
    return [resources[node] for node_namespace, node in nodes.items() if node_namespace != namespace]


def _check_removal(world: World, nodes: dict[str, str], objects: list[Plain]) -> None:
    """Remove all filters and check that the mesh equals one without filters, so no shared value was modified."""
    for item in objects:
        apply_filter(world, item | {"spec": {"configPatches": []}})
    assert observe(world, nodes) == observe(*start_mesh())


@settings(max_examples=12)
@given(st.lists(filters(), min_size=1, max_size=3))
def test_edits_equal_a_fresh_start_and_affect_only_their_namespace(edits: list[Plain]) -> None:
    check_edits(edits)
