"""Start order, stop order and readiness of parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from pilot.bootstrap.part import Part, Parts
from pilot.lib.start_error import StartError


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
