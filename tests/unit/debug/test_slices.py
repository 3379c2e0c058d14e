"""Slices of long responses, and pauses of the garbage collector during large ones."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time

import pytest

from pilot.debug.slices import PAUSE, SLICE, collect_all, without_collections


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


def test_computations_pause_for_each_other_after_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep, clock = asyncio.sleep, itertools.count(0, SLICE)

    async def record(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", record)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))

    async def compute(*counts: int) -> list[list[int]]:
        return await asyncio.gather(*(collect_all(range(count)) for count in counts))

    assert asyncio.run(compute(3)) == [[0, 1, 2]]
    assert pauses == [0, 0, 0]
    pauses.clear()
    asyncio.run(compute(4, 4, 9))
    assert pauses[-1] == 0, "the others have ended"
    assert max(pauses) == 2 * PAUSE
