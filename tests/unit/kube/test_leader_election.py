"""When a replica takes a lock, what it writes there, and when it stops to lead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pilot.kube import leader_election as lease
from pilot.kube.api_errors import Unreachable
from pilot.kube.leader_election import LeaderElection, LeaseDurations, never_outranks
from pilot.kube.leader_lock import LeaderRecord, LockObject
from testing.mesh.clock import run_virtual

OTHER = LeaderRecord("other", "their key", 10, "a", "b", 4)


def now() -> float:
    return asyncio.get_running_loop().time()


class Held:
    """A lock in memory. `changes` are done to it by others, each at its time. `trouble`: when reads begin to fail or hang, when they are mended, and
    until when somebody else is faster."""

    name = "writers"

    def __init__(self, record: LeaderRecord | None = None, **trouble: float) -> None:
        self.record, self._trouble = record, trouble
        self.changes: list[tuple[float, LeaderRecord]] = []
        self.written: list[tuple[float, LeaderRecord]] = []

    async def read(self) -> LockObject | None:
        if now() >= self._trouble.get("hangs", 1e9):
            await asyncio.Event().wait()
        if self._trouble.get("fails", 1e9) <= now() < self._trouble.get("mended", 1e9):
            raise Unreachable("no answer")
        while self.changes and self.changes[0][0] <= now():
            self.record = self.changes.pop(0)[1]
        return None if self.record is None else LockObject(self.record, {})

    async def write(self, record: LeaderRecord, over: LockObject | None) -> LockObject | None:
        assert (over and over.record) == self.record
        if self._trouble.get("loses", -1.0) >= now():
            return None
        self.record = record
        self.written.append((now(), record))
        return LockObject(record, {})


def lead(
    held: Held, seconds: float, monkeypatch: pytest.MonkeyPatch, outranks: Callable[[str], bool] = never_outranks
) -> list[tuple[float, bool]]:
    """When a replica began to lead and stopped, within that time; then it ends."""
    led: list[tuple[float, bool]] = []
    monkeypatch.setattr(lease, "_micro_time", lambda: f"t{now():.0f}")

    async def work() -> None:
        assert election.is_leader
        led.append((now(), True))
        try:
            await asyncio.Event().wait()
        finally:
            led.append((now(), False))

    election = LeaderElection(held, "me", LeaseDurations(), "key", outranks)  # type: ignore[arg-type]

    async def run() -> None:
        task = asyncio.create_task(election.run(work))
        await asyncio.sleep(seconds)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert not election.is_leader

    run_virtual(run())
    return led


def mine(acquired: float, renewed: float, transitions: int = 0) -> LeaderRecord:
    return LeaderRecord("me", "key", 30, f"t{acquired:.0f}", f"t{renewed:.0f}", transitions)


def given_back(acquired: float, at: float, transitions: int = 0) -> LeaderRecord:
    return LeaderRecord("", "", 1, f"t{acquired:.0f}", f"t{at:.0f}", transitions)


def test_a_lock_is_taken_renewed_and_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    with caplog.at_level(logging.INFO, "pilot.leader"):
        assert lead(held, 12, monkeypatch) == [(0, True), (12, False)]
    assert held.written == [(0, mine(0, 0)), (5, mine(0, 5)), (10, mine(0, 10)), (12, given_back(0, 12))]
    assert [r.getMessage() for r in caplog.records] == ["writers: became the leader"]


@pytest.mark.parametrize(
    ("record", "changes", "at", "first"),
    [
        (OTHER, [], 15, mine(15, 15, 5)),
        (OTHER, [(7.0, LeaderRecord("other", "their key", 10, "a", "c", 4))], 25, mine(25, 25, 5)),
        (LeaderRecord("other"), [], 35, mine(35, 35, 1)),
        (LeaderRecord(leader_transitions=2), [], 0, mine(0, 0, 3)),
        (LeaderRecord("me", "key", 30, "t-9", "t-1", 2), [], 0, LeaderRecord("me", "key", 30, "t-9", "t0", 2)),
    ],
    ids=["not renewed", "renewed once", "of no length", "given back", "our own"],
)
def test_when_a_lock_of_others_is_taken(
    record: LeaderRecord, changes: list[Any], at: float, first: LeaderRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(record)
    held.changes = changes
    assert lead(held, 40, monkeypatch) == [(at, True), (40, False)]
    assert held.written[0] == (at, first)


def test_who_has_more_right_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(OTHER)
    assert lead(held, 1, monkeypatch, lambda key: key == "their key") == [(0, True), (1, False)]
    assert held.written == [(0, mine(0, 0, 5)), (1, given_back(0, 1, 5))]


def test_who_was_slower_or_got_no_answer_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert lead(Held(loses=5.0), 12, monkeypatch) == [(10, True), (12, False)]
    assert not caplog.records
    assert lead(Held(fails=0.0, mended=5.0), 12, monkeypatch) == [(5, True), (12, False)]
    assert [r.getMessage() for r in caplog.records] == ["writers: no answer"]


@pytest.mark.parametrize(
    ("trouble", "led"),
    [
        ({"fails": 7.0}, [(0, True), (25, False)]),
        ({"hangs": 7.0}, [(0, True), (20, False)]),
        ({"fails": 7.0, "mended": 18.0}, [(0, True), (60, False)]),
        ({"fails": 7.0, "mended": 26.0}, [(0, True), (25, False), (30, True), (60, False)]),
    ],
)
def test_who_cannot_renew_stops(
    trouble: dict[str, float], led: list[tuple[float, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lead(Held(**trouble), 60, monkeypatch) == led


def test_who_finds_another_in_the_lock_stops_and_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    held.changes = [(8.0, OTHER)]
    with caplog.at_level(logging.INFO, "pilot.leader"):
        assert lead(held, 30, monkeypatch) == [(0, True), (10, False), (25, True), (30, False)]
    assert [r.getMessage() for r in caplog.records] == [
        "writers: became the leader",
        "writers: no longer the leader",
        "writers: became the leader",
    ]


def test_a_lock_that_cannot_be_given_back_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    assert lead(held, 3, monkeypatch) == [(0, True), (3, False)]
    assert held.written[-1] == (3, given_back(0, 3))
    waiting = Held(OTHER)
    assert lead(waiting, 3, monkeypatch) == []
    assert waiting.written == [], "who does not lead gives nothing back"
