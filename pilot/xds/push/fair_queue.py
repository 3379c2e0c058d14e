"""A queue that is fair between peers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Queue of items grouped by peer.

    Peers are served in turn, regardless of how many items each has queued. Every third pick takes the oldest peer and
    the others take the newest, so no peer starves and newcomers do not wait behind a burst of slow peers.
    """

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}
        self._picks = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, peer: str, item: T) -> None:
        self._items.setdefault(peer, deque()).append(item)
        self._count += 1

    def peek(self, is_eligible: Callable[[T], bool]) -> T | None:
        """Return the next eligible item, or None if there is none."""
        peers, end = (reversed(self._items), -1) if self._picks % 3 else (iter(self._items), 0)
        candidates = (self._items[peer][end] for peer in peers)
        return next((item for item in candidates if is_eligible(item)), None)

    def pop(self, peer: str, item: T) -> None:
        """Remove an item that was picked, and move its peer to the back of the queue."""
        self.remove(peer, item)
        self._picks += 1
        if (rest := self._items.pop(peer, None)) is not None:
            self._items[peer] = rest

    def remove(self, peer: str, item: T) -> bool:
        """Remove an item. Return False if it is not in the queue."""
        items = self._items.get(peer)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._count -= 1
        if not items:
            del self._items[peer]
        return True
