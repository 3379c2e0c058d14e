"""When problems between objects are looked at, how often they are told, and what that costs."""

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


class Followed:
    """A world whose problems are followed: `told` is every problem that was new, in order, `counts` those that there are by code."""

    def __init__(self) -> None:
        self.world, self.clock = World(), VirtualClock()
        self.told: list[Problem] = []
        self.counts: dict[tuple[str, Severity], int] = {}
        self.store = ProblemStore(
            self.told.append, lambda code, severity, count: self.counts.__setitem__((code, severity), count)
        )
        self.checking = Checking(self.world.mesh, self.clock, self.store, (*CHECKS, ROUTERS))

    def commit(self, rows: Mapping[Any, Any]) -> None:
        mesh = self.world.mesh
        self.checking.reached(mesh.commit([(mesh.tables[table], key, row) for (table, key), row in rows.items()]))

    def put(self, *objects: Plain, quiet: float = 60) -> None:
        self.commit(rows_of(objects))
        self.clock.advance(quiet)

    def found(self) -> Counter[str]:
        return Counter(p.code for p in self.store)


def missing(n: int) -> Plain:
    return vs(f"{{hosts: [h{n}.com], {to('ghost')}}}", f"v{n}")


def test_a_problem_is_told_once_and_again_only_after_it_was_gone() -> None:
    followed = Followed()
    followed.put(*BASE, missing(1))
    followed.put(missing(2))
    assert [p.object.name for p in followed.told] == ["v1", "v2"]
    assert followed.counts == {("destination-not-found", Severity.WARNING): 2}
    followed.put(vs(f"{{hosts: [h1.com], {to('api')}}}", "v1"))
    assert followed.found() == {"destination-not-found": 1}
    assert followed.counts == {("destination-not-found", Severity.WARNING): 1}
    followed.put(missing(1))
    assert [p.object.name for p in followed.told] == ["v1", "v2", "v1"]
    followed.commit(dict.fromkeys(rows_of([missing(1), missing(2)])))
    followed.clock.advance(60)
    assert len(followed.store) == 0
    assert set(followed.counts.values()) == {0}


def test_of_an_object_with_very_many_problems_its_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    followed = Followed()
    routes = ", ".join(["{destination: {host: ghost}, weight: 1}"] * (MAX_REPORTED + 5))
    followed.put(*BASE, vs(f"{{hosts: [b.com], http: [{{route: [{routes}]}}]}}", "many"))
    assert len(followed.told) == MAX_REPORTED
    assert [r.getMessage() for r in caplog.records] == [
        "5 more new problems in a/many; see /debug/problemz for all of them"
    ]


def test_two_routers_with_the_same_conflict_tell_it_once() -> None:
    followed = Followed()
    followed.put(*BASE, gw(), gw(port="{number: 80, name: tcp, protocol: TCP}", name="other"))
    mesh = followed.world.mesh
    ids = [f"router~{ip}" for ip in ("10.1.0.9", "10.1.0.8")]
    for ip, node_id in zip(("10.1.0.9", "10.1.0.8"), ids, strict=True):
        router = proxy("router", "edge-0", "edge", ip, {"istio": "ingress"})
        followed.checking.reached(mesh.commit([(mesh.proxies, node_id, router)]))
    followed.clock.advance(60)
    assert [p.code for p in followed.told] == [p.code for p in followed.store] == ["gateway-conflict"]
    assert followed.counts == {("gateway-conflict", Severity.WARNING): 1}
    for node_id in ids:
        followed.checking.reached(mesh.commit([(mesh.proxies, node_id, None)]))
    followed.clock.advance(60)
    assert list(followed.store) == []
    assert not followed.world.failures


def test_what_a_mesh_lacks_only_while_it_loads_is_never_told() -> None:
    followed = Followed()
    followed.put(*(missing(n) for n in range(3)), quiet=0.5)
    followed.put(*(vs(f"{{hosts: [h{n}.com], {to('api')}}}", f"v{n}") for n in range(3)), quiet=0.5)
    followed.put(*BASE)
    assert followed.told == []


def test_a_mesh_that_is_never_quiet_is_looked_at_in_the_end() -> None:
    followed = Followed()
    for n in range(30):
        followed.put(missing(n), quiet=0.5)
    assert followed.told


def test_a_large_mesh_is_looked_at_in_slices() -> None:
    followed = Followed()
    followed.commit(rows_of([missing(n) for n in range(2 * SLICE + 10)]))
    seen: list[int] = []
    store_replace = followed.store.replace

    def count(source: str, problems: Iterable[Problem]) -> None:
        seen.append(int(followed.clock.turns))
        store_replace(source, problems)

    followed.store.replace = count  # type: ignore[method-assign,assignment]
    followed.clock.advance(60)
    assert max(Counter(seen).values()) <= SLICE
    assert len(followed.store) == 2 * SLICE + 10


def test_an_edit_costs_the_checks_that_it_reaches() -> None:
    ran: list[Counter[str]] = []
    for count in (20, 200):
        followed = Followed()
        followed.put(*BASE, gw(), *(missing(n) for n in range(count)))
        counted: Counter[str] = Counter()

        def count_run(node: Node, counted: Counter[str] = counted) -> None:
            counted[node.fn.__name__] += 1

        followed.world.mesh.on_run = count_run
        followed.put(vs(f"{{hosts: [h7.com], {to('api')}}}", "v7"))
        ran.append(counted)
    assert ran[0] == ran[1]
    assert ran[0]["virtual_service_problems"] == 1
    assert ran[0].total() < 15


@pytest.mark.parametrize("part", range(8))
def test_problems_after_any_edits_are_those_of_a_fresh_start(seed: int, part: int) -> None:
    choose = random.Random(f"{seed} {part}")
    objects = [o for row in ROWS for o in (*row.causes, *row.fixes)]
    followed = Followed()
    now: Rows = rows_of(BASE)
    followed.commit(now)
    for step in range(STEPS):
        edits: dict[Any, Any] = dict(rows_of(choose.sample(objects, 6)))
        edits |= dict.fromkeys(choose.sample(sorted(now), min(len(now), 4)))
        followed.commit(edits)
        now = {key: row for key, row in (now | edits).items() if row is not None}
        followed.clock.advance(60)
        scratch = World()
        scratch.set(now)
        assert set(followed.store) == set(problems_of(scratch)), f"part {part} step {step}"
        followed.world.mesh.collect()
    assert not followed.world.failures
