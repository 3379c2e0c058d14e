"""Slots for concurrent work, which callers receive in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict


class NoSlot(Exception):
    """Too many callers are waiting. The caller may try again later."""


class FairSlots:
    """Limits concurrent work to `slots`, and that of a key to `share`, which is all slots if it is 0.

    If all slots are taken, callers with different keys receive free slots in turn, so that a key with many waiting
    callers does not delay the others. At most `capacity` callers wait. Beyond that, the last caller of the key with the
    most waiting callers is rejected.
    """

    def __init__(self, slots: int, capacity: int, share: int = 0) -> None:
        self._free, self._capacity, self._share = slots, capacity, share or slots
        self._taken = Counter[str]()
        self._waiting: OrderedDict[str, OrderedDict[asyncio.Future[None], None]] = OrderedDict()
        self._size = 0

    def slot(self, key: str) -> Slot:
        """Return a context manager that waits for a slot and holds it. It raises NoSlot if the caller is rejected."""
        return Slot(self, key)

    async def acquire(self, key: str) -> None:
        """Wait for a slot. Raise NoSlot if the caller is rejected."""
        if self._free and self._taken[key] < self._share:
            self._take(key)
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
                self.release(key)
            raise

    def _take(self, key: str) -> None:
        self._free -= 1
        self._taken[key] += 1

    def release(self, key: str) -> None:
        """Pass the slot of a key on to the first caller that waits under the next key with an unused share."""
        self._free += 1
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]
        while (following := next((key for key in self._waiting if self._taken[key] < self._share), None)) is not None:
            turn = next(iter(self._waiting[following]))
            self._waiting.move_to_end(following)
            self._leave(following, turn)
            if not turn.done():  # a cancelled caller may not have left yet
                self._take(following)
                turn.set_result(None)
                return

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


class Slot:
    """A slot of a key, as a context manager. A generator would take several times as long."""

    __slots__ = ("_key", "_slots")

    def __init__(self, slots: FairSlots, key: str) -> None:
        self._slots, self._key = slots, key

    async def __aenter__(self) -> None:
        await self._slots.acquire(self._key)

    async def __aexit__(self, *_: object) -> None:
        self._slots.release(self._key)
