"""A clock that only moves when told to."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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


class _Jumping(selectors.DefaultSelector):
    """Never waits: what would be waited for is left to who calls."""

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to what is waited for, and is 0 at its start. Nothing from outside of it may be waited for."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self._pass))

    def time(self) -> float:
        return self._now

    def _pass(self, seconds: float | None) -> None:
        assert seconds is not None, "nothing will happen any more"
        self._now += seconds


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, however long it waits."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
