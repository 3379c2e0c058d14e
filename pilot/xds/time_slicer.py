"""Responses are computed for a bounded time before other work of the event loop gets its turn."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable


class Turns:
    """A scheduler that spreads computing over rounds of the event loop: after `slice_seconds` the others wait for a later round, so that requests are
    read and /ready is answered while the configurations of many proxies are derived."""

    def __init__(self, slice_seconds: float = 0.01, now: Callable[[], float] = time.monotonic) -> None:
        self._slice, self._now = slice_seconds, now
        self._until = 0.0
        self._scheduled = False
        self._batch = 1
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Waits for time to compute."""
        if not self._scheduled:
            self._schedule()
        elif self._waiting or self._now() >= self._until:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _schedule(self) -> None:
        self._scheduled = True
        self._until = self._now() + self._slice
        asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        """Lets some go on: more at a time, up to 64, while a round takes less than a slice."""
        self._batch = min(2 * self._batch, 64) if self._now() < self._until else 1
        released = 0
        while self._waiting and released < self._batch:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                released += 1
        self._scheduled = False
        if released:
            self._schedule()
