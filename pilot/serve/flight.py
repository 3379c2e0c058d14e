"""How much may be under way at once, in bytes on the wire and in time on the event loop."""
from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable


class BytesInFlight:
    """Bounds the bytes of the responses that are being written: proxies that wait have no message made for them yet.

    Responses up to `small` bytes pass, so that slow readers of large ones do not hold back everybody's endpoints. A response larger
    than the limit goes alone.
    """

    def __init__(self, limit: int, small: int = 64 * 1024) -> None:
        self.limit, self.small = limit, small
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Reserve `size` bytes if there is room and nobody waits for it."""
        if size > self.small and (self._waiting or not self._fits(size)):
            return False
        self.used += size
        return True

    async def wait(self, size: int) -> None:
        """Reserve `size` bytes when it is this caller's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Undo a reservation."""
        self.used -= size
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(wanted):
                    return
                self.used += wanted
                turn.set_result(None)
            self._waiting.popleft()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used == 0


class Turns:
    """Spreads computing over rounds of the event loop: after `slice_seconds` the others wait for a later round, so that requests are
    read and /ready is answered while the configurations of many proxies are derived."""

    def __init__(self, slice_seconds: float = 0.01, now: Callable[[], float] = time.monotonic) -> None:
        self._slice, self._now = slice_seconds, now
        self._until = 0.0
        self._scheduled = False
        self._batch = 1
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for time to compute."""
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
        """Let some go on: more at a time, up to 64, while a round takes less than a slice."""
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
