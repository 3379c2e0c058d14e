from __future__ import annotations

from typing import Any

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD, SERVICE
from pilot.config.kubernetes.service import Service
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import Node, derived
from pilot.ingest.batch import LONG, SLICES, Batch, Commit
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock

KEY = RegistryKey("Kubernetes", "shop", "a")


def row(kind: str = "ClusterIP") -> Object[Service]:
    return Object(GroupKind("", "Service"), "shop", "a", Service(type=kind))


@derived
def kind_of(db: Mesh, key: ObjectKey) -> str:
    o = SERVICE.table(db).get(key)
    return "" if o is None else o.spec.type


class World:
    def __init__(self) -> None:
        self.mesh, self.clock = Mesh(), VirtualClock()
        self.commits: list[tuple[float, Commit]] = []
        self.start = self.clock.now
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("1s"), self._committed)

    def _committed(self, commit: Commit) -> None:
        self.commits.append((round(self.clock.now - self.start, 3), commit))


def test_a_change_waits_for_quiet() -> None:
    world = World()
    world.batch.put([(SERVICE.table_name, KEY, row())])
    world.clock.advance(0.06)
    world.batch.put([(SERVICE.table_name, KEY, row("NodePort"))])
    world.clock.advance(0.09)
    assert world.commits == []
    world.clock.advance(0.02)
    ((at, commit),) = world.commits
    assert at == 0.16
    assert commit.edits == [(SERVICE.table_name, KEY, row("NodePort"))]
    assert (commit.arrivals, round(commit.last - commit.first, 3)) == (2, 0.06)
    assert world.clock.waiting == 0


def test_changes_that_never_pause_are_committed_in_the_end() -> None:
    world = World()
    for _ in range(25):
        world.batch.put([(SERVICE.table_name, KEY, row())])
        world.clock.advance(0.08)
    assert [at for at, _ in world.commits] == [1.0]
    world.clock.advance(1)
    assert [at for at, _ in world.commits] == [1.0, 2.02]  # the last one came in at 1.92


def test_nothing_is_no_change() -> None:
    world = World()
    world.batch.put([])
    assert world.clock.waiting == 0
    world.batch.flush()
    assert world.commits == []


def test_flush_is_at_once_and_only_once() -> None:
    world = World()
    world.batch.put([(SERVICE.table_name, KEY, row())])
    assert len(world.batch) == 1
    world.batch.flush()
    world.clock.advance(5)
    assert [at for at, _ in world.commits] == [0.0]
    assert len(world.batch) == 0


def test_the_commit_says_what_it_reached() -> None:
    world = World()
    node = world.mesh.watch(kind_of, KEY)
    world.batch.put(
        [(SERVICE.table_name, KEY, row()), (SERVICE.table_name, RegistryKey("Kubernetes", "shop", "b"), row())]
    )
    world.clock.advance(1)
    world.batch.put([(SERVICE.table_name, KEY, None)])
    world.clock.advance(1)
    assert [commit.hit for _, commit in world.commits] == [[node], []]
    world.mesh.refresh(node)
    assert node.value == ""


def test_a_change_that_is_undone_in_time_reaches_nothing() -> None:
    world = World()
    world.mesh.watch(kind_of, KEY)
    world.batch.put([(SERVICE.table_name, KEY, row())])
    world.batch.put([(SERVICE.table_name, KEY, None)])
    world.clock.advance(1)
    assert [commit.hit for _, commit in world.commits] == [[]]


def many(count: int) -> list[tuple[str, RegistryKey, Object[Service] | None]]:
    return [(SERVICE.table_name, RegistryKey("Kubernetes", "shop", f"s{i}"), row()) for i in range(count)]


def test_thousands_of_edits_leave_the_loop_turns_and_are_told_once() -> None:
    world = World()
    edits = many(3 * SLICES[0] + 1)
    world.batch.put(edits)
    before = world.clock.turns
    world.clock.advance(0.1)
    assert len(SERVICE.table(world.mesh)) == SLICES[0]
    assert world.commits == []
    world.clock.advance(0.05)
    assert world.clock.turns - before == 4
    ((_, commit),) = world.commits
    assert commit.edits == edits
    assert commit.events == {(SERVICE.table_name, "add"): len(edits)}
    assert commit.arrivals == 1
    assert world.clock.waiting == len(world.batch) == 0


def test_edits_that_come_between_slices_win_and_wait_for_their_own_quiet() -> None:
    world = World()
    world.batch.put(many(2 * SLICES[0]))
    world.clock.advance(0.1)
    late = RegistryKey("Kubernetes", "shop", f"s{2 * SLICES[0] - 1}")
    world.batch.put([(SERVICE.table_name, late, row("NodePort"))])
    world.clock.advance(0.05)
    assert [len(commit.edits) for _, commit in world.commits] == [2 * SLICES[0]]
    world.clock.advance(0.06)
    assert [len(commit.edits) for _, commit in world.commits] == [2 * SLICES[0], 1]
    assert SERVICE.table(world.mesh).peek(late) == row("NodePort")


def test_flush_finishes_what_is_half_committed() -> None:
    world = World()
    world.batch.put(many(2 * SLICES[0]))
    world.clock.advance(0.1)
    world.batch.put([(SERVICE.table_name, KEY, row())])
    world.batch.flush()
    assert len(SERVICE.table(world.mesh)) == 2 * SLICES[0] + 1
    assert [len(commit.edits) for _, commit in world.commits] == [2 * SLICES[0], 1]
    assert world.clock.waiting == 0


def test_what_any_slice_reached_is_told_in_the_end() -> None:
    world = World()
    first = world.mesh.watch(kind_of, RegistryKey("Kubernetes", "shop", "s0"))
    last = world.mesh.watch(kind_of, RegistryKey("Kubernetes", "shop", f"s{2 * SLICES[0] - 1}"))
    world.batch.put(many(2 * SLICES[0]))
    world.clock.advance(0.2)
    ((_, commit),) = world.commits
    assert set(commit.hit) == {first, last}


def test_slices_that_take_long_become_larger() -> None:
    world = World()
    world.mesh.watch(kind_of, RegistryKey("Kubernetes", "shop", "s0"))
    commit = world.mesh.commit

    def slow(edits: list[Any]) -> list[Node]:
        world.clock.now += 2 * LONG
        return commit(edits)

    world.mesh.commit = slow  # type: ignore[method-assign, assignment]
    world.batch.put(many(3 * SLICES[0]))
    world.clock.advance(4 * LONG)
    ((_, told),) = world.commits
    assert (len(told.edits), round(told.took, 3)) == (3 * SLICES[0], 4 * LONG)  # two slices


def test_endpoints_that_never_pause_are_soon_where_callers_need_them() -> None:
    world = World()
    world.batch.put([(SERVICE.table_name, KEY, row())])
    for number in range(12):
        world.clock.advance(0.05)
        world.batch.put([((POD.table_name, ENDPOINT_SLICE.table_name)[number % 2], KEY, None)])
    assert [at for at, _ in world.commits] == [
        0.3,
        0.55,
    ]  # 250 ms after the first pod, with the service that came before it
    assert world.commits[0][1].edits[0] == (SERVICE.table_name, KEY, row())


def test_who_asks_for_more_quiet_has_it_for_endpoints_too() -> None:
    world = World()
    world.batch = Batch(world.mesh, world.clock, parse_duration("400ms"), parse_duration("1s"), world._committed)
    for number in range(20):
        world.batch.put([(SERVICE.table_name, KEY, row(f"kind {number}")), (POD.table_name, KEY, None)])
        world.clock.advance(0.05)
    assert [at for at, _ in world.commits] == [0.4, 0.8]


def test_endpoints_alone_do_not_wait_where_they_need_not() -> None:
    world = World()
    world.batch = Batch(
        world.mesh, world.clock, parse_duration("100ms"), parse_duration("10s"), world._committed, endpoints_wait=False
    )
    world.batch.put([(POD.table_name, KEY, None)])
    world.clock.advance(0.001)
    assert len(world.batch) == 0
    world.batch.put([(SERVICE.table_name, KEY, row())])
    world.batch.put([(POD.table_name, KEY, None)])
    world.clock.advance(0.05)
    assert len(world.batch) == 2, "what comes with other changes waits for quiet as they do"
    world.clock.advance(0.1)
    assert len(world.batch) == 0
