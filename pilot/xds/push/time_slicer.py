"""Limits how long the computation of responses delays other work on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator

LONGEST_PAUSE = 0.04
"""Maximum number of seconds between two slices of long computations."""
PAUSE_PART = 4
"""The part of the time of a computation that it pauses: a computation of 40 ms pauses for 10 ms."""


def count_none() -> int:
    """Return 0."""
    return 0


class TimeSlicer:
    """Spreads computation over iterations of the event loop.

    After `slice_seconds`, the remaining tasks wait for a later iteration. Requests are therefore read, and /ready is
    answered, while the configurations of many proxies are computed.

    A long computation pauses after each slice while other connections are being served, so that their responses do not
    wait for it. The longer it has already taken, the longer it pauses, and the computation that has taken least is
    resumed first. `count_stalled` returns the number of served connections that are not waited for.
    """

    def __init__(
        self,
        slice_seconds: float = 0.01,
        now: Callable[[], float] = time.monotonic,
        count_stalled: Callable[[], int] = count_none,
    ) -> None:
        self._slice_seconds, self._now, self._count_stalled = slice_seconds, now, count_stalled
        self._served = 0
        self._paused: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap
        self._numbers = itertools.count()
        self._resume_timer: asyncio.TimerHandle | None = None
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

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Count a connection as being served."""
        self._served += 1
        try:
            yield
        finally:
            self._leave()

    async def pause(self, taken: float) -> None:
        """Interrupt the computation for a connection that is being served. It has taken `taken` seconds so far."""
        self._leave()
        try:
            if self._is_busy:
                turn = asyncio.get_running_loop().create_future()
                heapq.heappush(self._paused, (taken, next(self._numbers), turn))
                self._schedule_resumption()
                await turn
            else:
                await asyncio.sleep(0)
        finally:
            self._served += 1
        await self.wait_turn()

    @property
    def _is_busy(self) -> bool:
        """Return whether connections are being served whose computations are not paused."""
        return self._served > self._count_stalled()

    def _leave(self) -> None:
        self._served -= 1
        if self._paused and not self._is_busy:
            self._resume()

    def _schedule_resumption(self) -> None:
        if self._paused and self._resume_timer is None:
            taken, _, _ = self._paused[0]
            self._resume_timer = asyncio.get_running_loop().call_later(
                min(taken / PAUSE_PART, LONGEST_PAUSE), self._resume
            )

    def _resume(self) -> None:
        """Resume the paused computation that has taken least."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None
        while self._paused:
            _, _, turn = heapq.heappop(self._paused)
            if not turn.done():
                turn.set_result(None)
                break
        self._schedule_resumption()

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
