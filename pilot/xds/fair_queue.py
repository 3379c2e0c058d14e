"""A line knows who waits for something, and whose turn is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """A line in which peers take turns, however many things each waits for. After one of the oldest come two of the newest: nobody
    waits for ever, and after a burst of many that are slow newcomers do not wait for all of them."""

    def __init__(self) -> None:
        self._by_peer: dict[str, deque[T]] = {}
        self._turn = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, peer: str, waiting: T) -> None:
        self._by_peer.setdefault(peer, deque()).append(waiting)
        self._count += 1

    def peek(self, may: Callable[[T], bool]) -> T | None:
        """Returns whose turn is next among those that `may`, None if nobody may."""
        peers, end = (reversed(self._by_peer), -1) if self._turn % 3 else (iter(self._by_peer), 0)
        return next((found for peer in peers if may(found := self._by_peer[peer][end])), None)

    def take(self, peer: str, waiting: T) -> None:
        """Gives it its turn; the other things of its peer stand behind those of all others then."""
        self.remove(peer, waiting)
        self._turn += 1
        if (rest := self._by_peer.pop(peer, None)) is not None:
            self._by_peer[peer] = rest

    def remove(self, peer: str, waiting: T) -> bool:
        """Takes it out of the line; returns False if it is not there."""
        things = self._by_peer.get(peer)
        if things is None or waiting not in things:
            return False
        things.remove(waiting)
        self._count -= 1
        if not things:
            del self._by_peer[peer]
        return True
