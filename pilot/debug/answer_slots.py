"""Limits the number of concurrent responses of debug pages. HTTP and xDS share the limit."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator

MAX_ANSWERS = 16
"""Maximum number of concurrent responses. A large page uses tens of megabytes of memory until it has been sent."""
PAUSE = 4.0
"""Duration of the pause after a response to a tenant, in multiples of the time that the response took.

A tenant therefore uses at most a fifth of a core.
"""
MAX_PAUSE = 10.0
"""Maximum duration of the pause in seconds. A tenant that reads slowly only delays itself."""


MAX_WAITING = 32
"""Maximum number of requests of a tenant that wait for its slot. They are a few kilobytes each."""


class TooManyWaiting(Exception):
    """Too many requests of the same tenant are waiting for a slot. The message is meant for the caller."""


class AnswerSlots:
    """The slots for responses of debug pages. A tenant has at most one."""

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        self._slots = asyncio.Semaphore(limit)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def hold(self, tenant: str | None) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the response has been sent. Raise TooManyWaiting if too many requests of
        the tenant wait.

        `tenant` is the namespace of a caller with limited access, or None for a caller that may access everything.
        """
        if tenant is None:
            async with self._slots:
                yield
            return
        if self._waiting[tenant] >= MAX_WAITING:
            raise TooManyWaiting(f"more than {MAX_WAITING} requests of the namespace wait for debug pages")
        turn = self._turns.setdefault(tenant, asyncio.Semaphore())
        self._waiting[tenant] += 1
        try:
            await turn.acquire()
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]
        started_at = time.monotonic()
        try:
            async with self._slots:
                started_at = time.monotonic()
                yield
        finally:
            pause = min(PAUSE * (time.monotonic() - started_at), MAX_PAUSE)
            asyncio.get_running_loop().call_later(pause, self._end_pause, tenant, turn)

    def _end_pause(self, tenant: str, turn: asyncio.Semaphore) -> None:
        turn.release()
        if not turn.locked():
            self._turns.pop(tenant, None)
