"""Random EnvoyFilters on a mesh: what lives through edits has what a fresh start has, nobody else notices, and nothing fails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.edits.random_envoy_filters import edit, filters, look, start
from testing.mesh.objects import Plain
from testing.mesh.world import World

pytestmark = pytest.mark.timeout(600)


def check_edits(edits: list[Plain]) -> None:
    """Applies edits one after the other to a mesh, and looks after each."""
    world, nodes = start()
    before, kept = look(world, nodes), dict[tuple[str, str], Plain]()
    for changed in edits:
        namespace = changed["metadata"]["namespace"]
        if not edit(world, changed):
            continue
        kept[namespace, changed["metadata"]["name"]] = changed
        seen = look(world, nodes)
        assert not world.failures
        fresh, same = start()
        for one in kept.values():
            assert edit(fresh, one)
        assert look(fresh, same) == seen
        if namespace != "istio-system":
            assert _others(before.resources, nodes, namespace) == _others(seen.resources, nodes, namespace)
        before = seen
    _end(world, nodes, list(kept.values()))


def _others(resources: dict[str, dict[str, dict[str, bytes]]], nodes: dict[str, str], namespace: str) -> list[object]:
    return [resources[node] for where, node in nodes.items() if where != namespace]


def _end(world: World, nodes: dict[str, str], kept: list[Plain]) -> None:
    """Without the filters, everything is as it was: no value that others share was written to."""
    for one in kept:
        edit(world, one | {"spec": {"configPatches": []}})
    assert look(world, nodes) == look(*start())


@settings(max_examples=12)
@given(st.lists(filters(), min_size=1, max_size=3))
def test_edits_of_envoy_filters_come_out_as_from_scratch_and_for_nobody_else(edits: list[Plain]) -> None:
    check_edits(edits)
