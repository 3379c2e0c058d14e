"""A clock that only moves when told to."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Handle:
    def __init__(self, due: float, callback: Callable[[], Any]) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Has what the event loop has of a clock; `advance` runs what falls due on the way, in its order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.turns = 0  # callbacks that ran
        self._handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Handle:
        handle = Handle(self.now + delay, callback)
        self._handles.append(handle)
        return handle

    @property
    def waiting(self) -> int:
        return sum(not handle.cancelled for handle in self._handles)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [handle for handle in self._handles if not handle.cancelled and handle.due <= end + 1e-9]:
            handle = min(due, key=lambda h: h.due)
            self._handles.remove(handle)
            self.now = max(self.now, handle.due)
            self.turns += 1
            handle.callback()
        self.now = end
