"""New streams are let in at a bounded rate: a thundering herd waits a moment, and what would wait for long is sent away to come again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

LONGEST_WAIT = 1.0


class Admission:
    """Lets in `rate` streams a second, evenly; 0 is no limit."""

    def __init__(
        self,
        rate: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1 / rate if rate > 0 else 0.0
        self._now, self._sleep = now, sleep
        self._free_at = 0.0

    async def admit(self) -> bool:
        """Waits for a place and returns True, or returns False at once where that would take longer than a second."""
        if not self._interval:
            return True
        now = self._now()
        start = max(now, self._free_at)
        if start - now > LONGEST_WAIT:
            return False
        self._free_at = start + self._interval
        if start > now:
            await self._sleep(start - now)
        return True
