"""Schedule, reporting and cost of the checks between objects."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pilot.config.problem import Problem, Severity
from pilot.derive import Node
from pilot.envoy.plans.gateway_problems import ROUTERS
from pilot.ingest.checking import SLICE, Checking
from pilot.ingest.problems import MAX_REPORTED, ProblemStore
from pilot.mesh.analysis.listed import CHECKS
from testing.mesh.clock import VirtualClock
from testing.mesh.problems import problems_of
from testing.mesh.world import Rows, World, proxy, rows_of
from tests.unit.mesh.analysis.test_checks import BASE, ROWS, Plain, gw, to, vs

STEPS = 12


class CheckedMesh:
    """A mesh that is checked continuously. `reported` lists new problems in order; `counts` has the current number by code."""

    def __init__(self) -> None:
        self.harness, self.clock = World(), VirtualClock()
        self.reported: list[Problem] = []
        self.counts: dict[tuple[str, Severity], int] = {}
        self.store = ProblemStore(
            self.reported.append, lambda code, severity, count: self.counts.__setitem__((code, severity), count)
        )
        self.checking = Checking(self.harness.mesh, self.clock, self.store, (*CHECKS, ROUTERS))

    def commit(self, rows: Mapping[Any, Any]) -> None:
        mesh = self.harness.mesh
        self.checking.reached(mesh.commit([(mesh.tables[table], key, row) for (table, key), row in rows.items()]))

    def put(self, *objects: Plain, quiet: float = 60) -> None:
        self.commit(rows_of(objects))
        self.clock.advance(quiet)

    def codes(self) -> Counter[str]:
        return Counter(p.code for p in self.store)


def broken_route(n: int) -> Plain:
    return vs(f"{{hosts: [h{n}.com], {to('ghost')}}}", f"v{n}")


def test_problem_is_reported_once_until_resolved() -> None:
    checked = CheckedMesh()
    checked.put(*BASE, broken_route(1))
    checked.put(broken_route(2))
    assert [p.object.name for p in checked.reported] == ["v1", "v2"]
    assert checked.counts == {("destination-not-found", Severity.ERROR): 2}
    checked.put(vs(f"{{hosts: [h1.com], {to('api')}}}", "v1"))
    assert checked.codes() == {"destination-not-found": 1}
    assert checked.counts == {("destination-not-found", Severity.ERROR): 1}
    checked.put(broken_route(1))
    assert [p.object.name for p in checked.reported] == ["v1", "v2", "v1"]
    checked.commit(dict.fromkeys(rows_of([broken_route(1), broken_route(2)])))
    checked.clock.advance(60)
    assert len(checked.store) == 0
    assert set(checked.counts.values()) == {0}


def test_problems_above_the_limit_are_summarised_per_object(caplog: pytest.LogCaptureFixture) -> None:
    checked = CheckedMesh()
    routes = ", ".join(["{destination: {host: ghost}, weight: 1}"] * (MAX_REPORTED + 5))
    checked.put(*BASE, vs(f"{{hosts: [b.com], http: [{{route: [{routes}]}}]}}", "many"))
    assert len(checked.reported) == MAX_REPORTED
    assert [r.getMessage() for r in caplog.records] == [
        "1 more new problems in a/many; see /debug/problemz for all of them"
    ]


def test_same_conflict_on_two_routers_is_reported_once() -> None:
    checked = CheckedMesh()
    checked.put(*BASE, gw(), gw(port="{number: 80, name: tcp, protocol: TCP}", name="other"))
    mesh = checked.harness.mesh
    ids = [f"router~{ip}" for ip in ("10.1.0.9", "10.1.0.8")]
    for ip, node_id in zip(("10.1.0.9", "10.1.0.8"), ids, strict=True):
        router = proxy("router", "edge-0", "edge", ip, {"istio": "ingress"})
        checked.checking.reached(mesh.commit([(mesh.proxies, node_id, router)]))
    checked.clock.advance(60)
    assert [p.code for p in checked.reported] == [p.code for p in checked.store] == ["gateway-conflict"]
    assert checked.counts == {("gateway-conflict", Severity.WARNING): 1}
    for node_id in ids:
        checked.checking.reached(mesh.commit([(mesh.proxies, node_id, None)]))
    checked.clock.advance(60)
    assert list(checked.store) == []
    assert not checked.harness.failures


def test_problems_during_loading_are_not_reported() -> None:
    checked = CheckedMesh()
    checked.put(*(broken_route(n) for n in range(3)), quiet=0.5)
    checked.put(*(vs(f"{{hosts: [h{n}.com], {to('api')}}}", f"v{n}") for n in range(3)), quiet=0.5)
    checked.put(*BASE)
    assert checked.reported == []


def test_checks_run_eventually_without_quiet() -> None:
    checked = CheckedMesh()
    for n in range(30):
        checked.put(broken_route(n), quiet=0.5)
    assert checked.reported


def test_large_mesh_is_checked_in_slices() -> None:
    checked = CheckedMesh()
    checked.commit(rows_of([broken_route(n) for n in range(2 * SLICE + 10)]))
    turns: list[int] = []
    store_replace = checked.store.replace

    def count(source: str, problems: Iterable[Problem]) -> None:
        turns.append(int(checked.clock.turns))
        store_replace(source, problems)

    checked.store.replace = count  # type: ignore[method-assign,assignment]
    checked.clock.advance(60)
    assert max(Counter(turns).values()) <= SLICE
    assert len(checked.store) == 2 * SLICE + 10


def test_edit_runs_only_the_affected_checks() -> None:
    runs: list[Counter[str]] = []
    for count in (20, 200):
        checked = CheckedMesh()
        checked.put(*BASE, gw(), *(broken_route(n) for n in range(count)))
        run_counts: Counter[str] = Counter()

        def count_run(node: Node, run_counts: Counter[str] = run_counts) -> None:
            run_counts[node.fn.__name__] += 1

        checked.harness.mesh.on_run = count_run
        checked.put(vs(f"{{hosts: [h7.com], {to('api')}}}", "v7"))
        runs.append(run_counts)
    assert runs[0] == runs[1]
    assert runs[0]["virtual_service_problems"] == 1
    assert runs[0].total() < 15


@pytest.mark.parametrize("part", range(8))
def test_problems_after_random_edits_equal_a_fresh_start(seed: int, part: int) -> None:
    rng = random.Random(f"{seed} {part}")
    objects = [plain for row in ROWS for plain in (*row.causes, *row.fixes)]
    checked = CheckedMesh()
    rows: Rows = rows_of(BASE)
    checked.commit(rows)
    for step in range(STEPS):
        edits: dict[Any, Any] = dict(rows_of(rng.sample(objects, 6)))
        edits |= dict.fromkeys(rng.sample(sorted(rows), min(len(rows), 4)))
        checked.commit(edits)
        rows = {key: row for key, row in (rows | edits).items() if row is not None}
        checked.clock.advance(60)
        scratch = World()
        scratch.set(rows)
        assert set(checked.store) == set(problems_of(scratch)), f"part {part} step {step}"
        checked.harness.mesh.collect()
    assert not checked.harness.failures
