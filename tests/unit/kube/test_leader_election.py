"""Leader election: acquiring, renewing, losing and releasing a lock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pilot.kube import leader_election as election_module
from pilot.kube.api_errors import Unreachable
from pilot.kube.leader_election import LeaderElection, LeaseDurations, never_outranks
from pilot.kube.leader_lock import LeaderRecord, LockObject
from testing.mesh.clock import run_virtual

OTHER = LeaderRecord("other", "their key", 10, "a", "b", 4)


def now() -> float:
    return asyncio.get_running_loop().time()


class MemoryLock:
    """A lock in memory. `changes` are writes by others at their times. `faults` are the times at which reads begin to fail or hang and
    recover, and until when writes lose the race."""

    name = "writers"

    def __init__(self, record: LeaderRecord | None = None, **faults: float) -> None:
        self.record, self._faults = record, faults
        self.changes: list[tuple[float, LeaderRecord]] = []
        self.writes: list[tuple[float, LeaderRecord]] = []

    async def read(self) -> LockObject | None:
        if now() >= self._faults.get("hangs", 1e9):
            await asyncio.Event().wait()
        if self._faults.get("fails", 1e9) <= now() < self._faults.get("recovers", 1e9):
            raise Unreachable("no answer")
        while self.changes and self.changes[0][0] <= now():
            self.record = self.changes.pop(0)[1]
        return None if self.record is None else LockObject(self.record, {})

    async def write(self, record: LeaderRecord, over: LockObject | None) -> LockObject | None:
        assert (over and over.record) == self.record
        if self._faults.get("loses", -1.0) >= now():
            return None
        self.record = record
        self.writes.append((now(), record))
        return LockObject(record, {})


def lead(
    lock: MemoryLock, seconds: float, monkeypatch: pytest.MonkeyPatch, outranks: Callable[[str], bool] = never_outranks
) -> list[tuple[float, bool]]:
    """Run a replica for that time and return when it became and ceased to be the leader."""
    transitions: list[tuple[float, bool]] = []
    monkeypatch.setattr(election_module, "_micro_time", lambda: f"t{now():.0f}")

    async def work() -> None:
        assert election.is_leader
        transitions.append((now(), True))
        try:
            await asyncio.Event().wait()
        finally:
            transitions.append((now(), False))

    election = LeaderElection(lock, "me", LeaseDurations(), "key", outranks)  # type: ignore[arg-type]

    async def run() -> None:
        task = asyncio.create_task(election.run(work))
        await asyncio.sleep(seconds)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert not election.is_leader

    run_virtual(run())
    return transitions


def own_record(acquired: float, renewed: float, transitions: int = 0) -> LeaderRecord:
    return LeaderRecord("me", "key", 30, f"t{acquired:.0f}", f"t{renewed:.0f}", transitions)


def released_record(acquired: float, renewed: float, transitions: int = 0) -> LeaderRecord:
    return LeaderRecord("", "", 1, f"t{acquired:.0f}", f"t{renewed:.0f}", transitions)


def test_lock_is_acquired_renewed_and_released(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = MemoryLock()
    with caplog.at_level(logging.INFO, "pilot.leader"):
        assert lead(lock, 12, monkeypatch) == [(0, True), (12, False)]
    assert lock.writes == [
        (0, own_record(0, 0)),
        (5, own_record(0, 5)),
        (10, own_record(0, 10)),
        (12, released_record(0, 12)),
    ]
    assert [r.getMessage() for r in caplog.records] == ["writers: this replica became the leader"]


@pytest.mark.parametrize(
    ("record", "changes", "acquired", "expected"),
    [
        (OTHER, [], 15, own_record(15, 15, 5)),
        (OTHER, [(7.0, LeaderRecord("other", "their key", 10, "a", "c", 4))], 25, own_record(25, 25, 5)),
        (LeaderRecord("other"), [], 35, own_record(35, 35, 1)),
        (LeaderRecord(leader_transitions=2), [], 0, own_record(0, 0, 3)),
        (LeaderRecord("me", "key", 30, "t-9", "t-1", 2), [], 0, LeaderRecord("me", "key", 30, "t-9", "t0", 2)),
    ],
    ids=["not renewed", "renewed once", "without a duration", "released", "own"],
)
def test_expired_or_released_lock_is_acquired(
    record: LeaderRecord, changes: list[Any], acquired: float, expected: LeaderRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = MemoryLock(record)
    lock.changes = changes
    assert lead(lock, 40, monkeypatch) == [(acquired, True), (40, False)]
    assert lock.writes[0] == (acquired, expected)


def test_outranking_candidate_acquires_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = MemoryLock(OTHER)
    assert lead(lock, 1, monkeypatch, lambda key: key == "their key") == [(0, True), (1, False)]
    assert lock.writes == [(0, own_record(0, 0, 5)), (1, released_record(0, 1, 5))]


def test_failed_acquisition_is_retried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert lead(MemoryLock(loses=5.0), 12, monkeypatch) == [(10, True), (12, False)]
    assert not caplog.records
    assert lead(MemoryLock(fails=0.0, recovers=5.0), 12, monkeypatch) == [(5, True), (12, False)]
    assert [r.getMessage() for r in caplog.records] == ["writers: no answer"]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"fails": 7.0}, [(0, True), (25, False)]),
        ({"hangs": 7.0}, [(0, True), (20, False)]),
        ({"fails": 7.0, "recovers": 18.0}, [(0, True), (60, False)]),
        ({"fails": 7.0, "recovers": 26.0}, [(0, True), (25, False), (30, True), (60, False)]),
    ],
)
def test_leader_that_cannot_renew_steps_down(
    faults: dict[str, float], expected: list[tuple[float, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lead(MemoryLock(**faults), 60, monkeypatch) == expected


def test_leader_replaced_in_the_lock_steps_down_and_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = MemoryLock()
    lock.changes = [(8.0, OTHER)]
    with caplog.at_level(logging.INFO, "pilot.leader"):
        assert lead(lock, 30, monkeypatch) == [(0, True), (10, False), (25, True), (30, False)]
    assert [r.getMessage() for r in caplog.records] == [
        "writers: this replica became the leader",
        "writers: this replica is no longer the leader",
        "writers: this replica became the leader",
    ]


def test_only_the_leader_releases_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = MemoryLock()
    assert lead(lock, 3, monkeypatch) == [(0, True), (3, False)]
    assert lock.writes[-1] == (3, released_record(0, 3))
    other_lock = MemoryLock(OTHER)
    assert lead(other_lock, 3, monkeypatch) == []
    assert other_lock.writes == [], "only the leader releases the lock"
