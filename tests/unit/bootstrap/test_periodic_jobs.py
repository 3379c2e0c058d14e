"""Periodic jobs, and the return of free memory to the system."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from pilot.bootstrap.periodic_jobs import MallocTrimmer, MemoryRelease, PeriodicJobs
from testing.mesh.clock import VirtualClock


async def test_failed_job_is_logged_and_others_run(caplog: pytest.LogCaptureFixture) -> None:
    clock, calls = VirtualClock(), []

    def failing() -> None:
        calls.append("failing")
        raise ZeroDivisionError("reason")

    sweeper = PeriodicJobs(clock, 10.0, (failing, lambda: calls.append("next")))
    await sweeper.start()
    clock.advance(9.9)
    assert calls == []
    with caplog.at_level(logging.ERROR, "pilot"):
        clock.advance(0.2)
        assert calls == ["failing", "next"]
        clock.advance(20)
    assert calls == ["failing", "next"] * 3
    assert "ZeroDivisionError: reason" in caplog.text
    await sweeper.stop()
    clock.advance(100)
    assert len(calls) == 6


async def test_sweep_steps_yield_to_other_timers() -> None:
    clock, calls = VirtualClock(), []

    def in_steps() -> Iterator[None]:
        for step in range(3):
            calls.append(f"step {step}")
            clock.call_later(0, lambda: calls.append("other"))
            yield

    sweeper = PeriodicJobs(clock, 10.0, (in_steps, lambda: calls.append("next")))
    await sweeper.start()
    clock.advance(10)
    assert calls == ["step 0", "other", "step 1", "other", "step 2", "other", "next"]
    clock.advance(10)
    assert len(calls) == 14
    await sweeper.stop()
    clock.advance(100)
    assert len(calls) == 14


async def test_malloc_trim_runs_in_a_thread() -> None:
    finished, loop = asyncio.Event(), asyncio.get_running_loop()
    calls = []

    def trim(pad: int) -> None:
        calls.append((pad, threading.current_thread() is threading.main_thread()))
        loop.call_soon_threadsafe(finished.set)

    MallocTrimmer(trim)()
    async with asyncio.timeout(30):
        await finished.wait()
    assert calls == [(0, False)]
    MallocTrimmer(None)()


@pytest.mark.parametrize(("steps", "trims"), [(0, 0), (3, 1)])
def test_memory_is_returned_after_several_steps(steps: int, trims: int) -> None:
    calls: list[str] = []
    job = MemoryRelease(lambda: iter([None] * steps), lambda: calls.append("trim"))
    for _ in range(2):
        calls.clear()
        assert len(list(job())) == steps
        assert calls == ["trim"] * trims
