"""Slots for concurrent work, which callers receive in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator


class NoSlot(Exception):
    """Too many callers are waiting. The caller may try again later."""


class FairSlots:
    """Limits concurrent work to `slots`.

    If all slots are taken, callers with different keys receive free slots in turn, so that a key with many waiting
    callers does not delay the others. At most `capacity` callers wait. Beyond that, the last caller of the key with the
    most waiting callers is rejected.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        self._free, self._capacity = slots, capacity
        self._waiting: OrderedDict[str, OrderedDict[asyncio.Future[None], None]] = OrderedDict()
        self._size = 0

    @contextlib.asynccontextmanager
    async def slot(self, key: str) -> AsyncIterator[None]:
        """Return a context manager that waits for a slot and holds it. Raise NoSlot if the caller is rejected."""
        await self._acquire(key)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, key: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, OrderedDict())[turn] = None
        self._size += 1
        if self._size > self._capacity:
            self._reject_last(max(self._waiting, key=lambda key: len(self._waiting[key])))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(key, turn)
            elif turn.exception() is None:  # the slot was assigned just before the cancellation
                self._release()
            raise

    def _release(self) -> None:
        """Pass a slot on to the first caller that waits under the next key."""
        while self._waiting:
            key, queue = next(iter(self._waiting.items()))
            turn = next(iter(queue))
            self._waiting.move_to_end(key)
            self._leave(key, turn)
            if not turn.done():  # a cancelled caller may not have left yet
                turn.set_result(None)
                return
        self._free += 1

    def _reject_last(self, key: str) -> None:
        turn = next(reversed(self._waiting[key]))
        self._leave(key, turn)
        if not turn.done():
            turn.set_exception(NoSlot())

    def _leave(self, key: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(key)
        if queue is not None and turn in queue:
            del queue[turn]
            self._size -= 1
            if not queue:
                del self._waiting[key]
