"""Slices of long responses, and pauses of the garbage collector during large ones."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from pilot.debug.slices import PATIENCE, PROBE, SLICE, collect_all, collect_present, without_collections


def test_collection_pauses_during_large_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collection is disabled for at most ten seconds, however many responses overlap."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    states = []
    with without_collections():
        states.append(gc.isenabled())
        now = 110.0
        with without_collections():
            states.append(gc.isenabled())
        states.append(gc.isenabled())
        now = 110.1
        with without_collections():
            states.append(gc.isenabled())
    assert states == [False, False, False, True]
    assert gc.isenabled()
    now = 200.0
    with without_collections():
        assert not gc.isenabled()
        now = 205.0
        with without_collections():
            assert not gc.isenabled()
    assert gc.isenabled()


def test_large_responses_do_not_resume_a_collection_that_others_suspended() -> None:
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


ITEM = 1.01 * SLICE
"""Seconds that an item takes: more than a slice, also after rounding."""


class Loop:
    """A clock, and an event loop that uses a part of the time during pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float) -> None:
        self.now, self.computed, self.busy, self.pauses = 0.0, 0.0, busy, list[float]()
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._pause)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "thread_time", lambda: self.computed)

    async def _pause(self, seconds: float) -> None:
        self.now += seconds
        self.computed += seconds * self.busy
        self.pauses.append(seconds)
        await self._sleep(0)

    def compute(self, *counts: int) -> list[str]:
        """Run concurrent computations whose items take more than a slice each. Return the items in the order of their end."""
        done = list[str]()

        def items(number: int, count: int) -> Iterator[None]:
            for item in range(count):
                self.now += ITEM
                done.append(f"{number}.{item}")
                yield None

        async def run() -> None:
            await asyncio.gather(*(collect_all(items(number, count)) for number, count in enumerate(counts)))

        asyncio.run(run())
        return done


def test_computations_use_an_idle_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, busy=0.1)
    loop.compute(3)
    assert loop.pauses == [PROBE] * 3


def test_computations_use_a_small_part_of_a_busy_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, busy=0.9)
    loop.compute(5)
    assert 5 * ITEM / loop.now == pytest.approx(1 / (1 + PATIENCE), rel=0.1)


def test_concurrent_computations_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, busy=0.9)
    assert loop.compute(2, 2, 3) == ["0.0", "1.0", "2.0", "0.1", "1.1", "2.1", "2.2"]
    assert 7 * ITEM / loop.now == pytest.approx(1 / (1 + PATIENCE), rel=0.1)


def test_failed_computations_pass_their_turn_on() -> None:
    async def run() -> list[int]:
        with pytest.raises(ZeroDivisionError):
            await collect_all(1 // n for n in (1, 0))
        return await collect_all([1, 2])

    assert asyncio.run(run()) == [1, 2]


async def test_items_that_are_absent_are_left_out() -> None:
    assert await collect_present(iter([1, None, 2, None])) == [1, 2]
