"""Limits how long the computation of responses delays other work on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable


class TimeSlicer:
    """Spreads computation over iterations of the event loop.

    After `slice_seconds`, the remaining tasks wait for a later iteration. Requests are therefore read, and /ready is
    answered, while the configurations of many proxies are computed.
    """

    def __init__(self, slice_seconds: float = 0.01, now: Callable[[], float] = time.monotonic) -> None:
        self._slice_seconds, self._now = slice_seconds, now
        self._slice_ends_at = 0.0
        self._is_scheduled = False
        self._batch_size = 1
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_turn(self) -> None:
        """Wait until it is the caller's turn to use the event loop."""
        if not self._is_scheduled:
            self._schedule_round()
        elif self._waiting or self._now() >= self._slice_ends_at:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _schedule_round(self) -> None:
        self._is_scheduled = True
        self._slice_ends_at = self._now() + self._slice_seconds
        asyncio.get_running_loop().call_soon(self._run_round)

    def _run_round(self) -> None:
        """Resume waiting tasks. As long as a round takes less time than a slice, the next round resumes twice as many
        tasks, up to 64."""
        self._batch_size = min(2 * self._batch_size, 64) if self._now() < self._slice_ends_at else 1
        resumed = 0
        while self._waiting and resumed < self._batch_size:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                resumed += 1
        self._is_scheduled = False
        if resumed:
            self._schedule_round()
