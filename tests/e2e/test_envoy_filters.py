"""EnvoyFilters in a stock Envoy: one for each thing that can be patched and each operation, seen in its config dump and by a client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testing.processes.patched_gateway import Case, PatchedEdge
from testing.processes.process import eventually
from testing.tables.envoy_filter_cases import CASES


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatchedEdge]:
    found = PatchedEdge(tmp_path_factory.mktemp("patched"), CASES)
    try:
        found.settle()
        yield found
        assert found.envoy.rejected() == {}, found.envoy.tail()
    finally:
        found.stop()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_patch_is_seen_in_envoy_and_by_a_client(case: Case, edge: PatchedEdge) -> None:
    at = edge.at[case.name]
    assert case.shown(at)
    assert case.acts(at)


def test_every_patch_changes_something(edge: PatchedEdge) -> None:
    def told() -> bool:
        problems = json.loads(edge.plane.get("/debug/problemz"))
        return [problem for problem in problems if problem["object"]["kind"].endswith("EnvoyFilter")] == []

    eventually(told, 30, "no problems of EnvoyFilters")


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40
