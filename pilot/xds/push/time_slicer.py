"""Limits how long the computation of responses delays other work on the event loop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable

PAUSE_FRACTION = 0.25
"""Pause of a long computation, as a fraction of the time that it has taken."""
LONGEST_PAUSE = 0.04
"""Maximum number of seconds between two slices of long computations."""
IDLE = 0.0005
"""Maximum number of seconds of an iteration in which the event loop has little else to do."""


class TimeSlicer:
    """Spreads computation over iterations of the event loop.

    After `slice_seconds`, the remaining tasks wait for a later iteration. Requests are therefore read, and /ready is
    answered, while the configurations of many proxies are computed.

    A long computation pauses after each slice while the event loop is busy, so that the responses of other connections
    do not wait for it. The longer it has taken, the longer it pauses. The computation that has taken least is resumed
    first.
    """

    def __init__(self, slice_seconds: float = 0.01, now: Callable[[], float] = time.monotonic) -> None:
        self._slice_seconds, self._now = slice_seconds, now
        self._slice_ends_at = 0.0
        self._is_scheduled = False
        self._batch_size = 1
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paused: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._numbers = itertools.count()
        self._resumed_at = self._last_iteration = 0.0

    async def wait_turn(self) -> None:
        """Wait until it is the caller's turn to use the event loop."""
        if not self._is_scheduled:
            self._schedule_round()
        elif self._waiting or self._now() >= self._slice_ends_at:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    async def pause(self, taken: float) -> None:
        """Interrupt a computation that has taken `taken` seconds so far."""
        loop = asyncio.get_running_loop()
        if not self._paused:
            self._resumed_at = self._last_iteration = self._now()
            loop.call_soon(self._check_paused)
        turn = loop.create_future()
        heapq.heappush(self._paused, (taken, next(self._numbers), turn))
        await turn
        await self.wait_turn()

    def _check_paused(self) -> None:
        """Resume a paused computation if the last iteration was idle, or if the pause is over. This runs in each
        iteration while computations are paused."""
        now = self._now()
        pause = min(self._paused[0][0] * PAUSE_FRACTION, LONGEST_PAUSE)
        if now - self._last_iteration <= IDLE or now - self._resumed_at >= pause:
            self._resume()
            self._resumed_at = now
        self._last_iteration = now
        if self._paused:
            asyncio.get_running_loop().call_soon(self._check_paused)

    def _resume(self) -> None:
        """Resume the computation that has taken least."""
        while self._paused:
            _, _, turn = heapq.heappop(self._paused)
            if not turn.done():
                turn.set_result(None)
                return

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
