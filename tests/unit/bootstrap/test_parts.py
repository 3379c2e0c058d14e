"""Start order, stop order and readiness of parts."""

from __future__ import annotations

import asyncio
import logging
import platform
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pilot.bootstrap.part import Part, Parts
from pilot.bootstrap.periodic_jobs import MallocTrimmer, PeriodicJobs, find_trim
from pilot.lib.start_error import StartError
from testing.mesh.clock import VirtualClock


class Journal:
    """Builds parts that record their start and stop."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def part(
        self,
        name: str,
        start: BaseException | None = None,
        stop: BaseException | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> Part:
        return Part(name, self._write(f"start {name}", start), self._write(f"stop {name}", stop), ready)

    def _write(self, line: str, error: BaseException | None) -> Callable[[], Awaitable[None]]:
        async def write() -> None:
            if error is not None:
                raise error
            self.lines.append(line)

        return write


async def test_parts_start_in_order_and_stop_in_reverse() -> None:
    journal = Journal()
    parts = Parts([journal.part("a"), journal.part("b"), journal.part("c")])
    assert not parts.ready
    await parts.start()
    assert parts.ready
    await parts.stop()
    assert not parts.ready
    assert journal.lines == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]
    await parts.stop()
    assert len(journal.lines) == 6, "parts stop only once"


async def test_failed_start_stops_started_parts() -> None:
    journal = Journal()
    parts = Parts(
        [
            journal.part("a"),
            journal.part("b"),
            journal.part("the c", start=OSError(24, "Too many open files")),
            journal.part("d"),
        ]
    )
    with pytest.raises(StartError, match=r"^cannot start the c: Too many open files$"):
        await parts.start()
    assert journal.lines == ["start a", "start b", "stop b", "stop a"]
    assert not parts.ready


async def test_memory_error_at_start_is_one_sentence() -> None:
    with pytest.raises(StartError, match=r"^cannot start a: out of memory$"):
        await Parts([Journal().part("a", start=MemoryError())]).start()


async def test_cancelled_start_stops_started_parts() -> None:
    journal = Journal()
    with pytest.raises(asyncio.CancelledError):
        await Parts([journal.part("a"), journal.part("b", start=asyncio.CancelledError())]).start()
    assert journal.lines == ["start a", "stop a"]


async def test_failed_stop_does_not_block_other_parts(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    parts = Parts([journal.part("a"), journal.part("b", stop=ZeroDivisionError("reason")), journal.part("c")])
    await parts.start()
    with caplog.at_level(logging.ERROR, "pilot"):
        await parts.stop()
    assert journal.lines[-2:] == ["stop c", "stop a"]
    assert "cannot stop b" in caplog.text


async def test_readiness_requires_every_part() -> None:
    synced = [False]
    parts = Parts([Journal().part("a"), Journal().part("b", ready=lambda: synced[0])])
    await parts.start()
    assert not parts.ready
    synced[0] = True
    assert parts.ready


async def test_stopping_parts_are_not_ready() -> None:
    states = []

    async def stop() -> None:
        states.append(parts.ready)

    async def start() -> None:
        states.append(parts.ready)

    parts = Parts([Part("a", start, stop)])
    await parts.start()
    await parts.stop()
    assert states == [False, False]


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


def test_c_library_provides_malloc_trim() -> None:
    trim = find_trim()
    assert trim is not None or "musl" in platform.libc_ver()[0]
