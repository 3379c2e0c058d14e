"""The watchdog reports stalls of the event loop with their causes."""

from __future__ import annotations

import asyncio
import time
from types import FrameType

from pilot.lib.loop_watchdog import Cause, LoopWatchdog, Stall


def _block(seconds: float) -> None:
    time.sleep(seconds)


async def test_stall_is_reported_with_the_function_that_caused_it() -> None:
    reported: asyncio.Queue[Stall] = asyncio.Queue()
    watchdog = LoopWatchdog(reported.put_nowait)
    await watchdog.start()
    try:
        asyncio.get_running_loop().call_soon(_block, 0.3)
        stall = await asyncio.wait_for(reported.get(), 30)
    finally:
        await watchdog.stop()
    assert stall.seconds >= 0.05
    assert stall.cause == Cause(f"{__name__}._block", f"{__name__}._block")
    assert watchdog.worst() == stall


async def test_idle_event_loop_is_not_sampled() -> None:
    def fail(frames: list[FrameType]) -> Cause:
        raise AssertionError(frames)

    watchdog = LoopWatchdog(lambda stall: None, fail)
    await watchdog.start()
    await watchdog.stop()
    assert watchdog.worst() is None
