"""A virtual clock, and an event loop with virtual time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Handle:
    """A scheduled callback."""

    def __init__(self, due: float, callback: Callable[[], Any]) -> None:
        self.due, self.callback, self.cancelled = due, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """A clock with the timer methods of an event loop. `advance` runs the callbacks that become due, in order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.turns = 0  # number of callbacks run
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


class _NonBlockingSelector(selectors.DefaultSelector):
    """A selector that calls `wait` instead of blocking."""

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at time 0 and jumps to the next timer when idle.

    It does not wait for external events.
    """

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_NonBlockingSelector(self._skip))

    def time(self) -> float:
        return self._now

    def _skip(self, seconds: float | None) -> None:
        assert seconds is not None, "deadlock: no timer is pending"
        self._now += seconds


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine without real waiting."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
