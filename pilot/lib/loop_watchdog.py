"""A watchdog that measures for how long the event loop is blocked, and by what."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NamedTuple

INTERVAL = 0.05
"""Seconds between two checks. The measured duration of a stall is too short by at most this interval."""
STALL = 0.05
"""Seconds after which a blocked event loop counts as stalled. Other tasks do not notice shorter delays."""
MAX_SAMPLES = 20
"""Maximum number of stack samples of a stall."""
KEPT_STALLS = 100
KEPT_SECONDS = 3600.0
_LOOP_MODULES = ("asyncio.", "uvloop")


class Cause(NamedTuple):
    """The cause of a stall.

    `work` is the name of a function or derivation. `subject` names what it was working on, or is "" if that is unknown.
    """

    work: str
    subject: str = ""


class Stall(NamedTuple):
    """A period in which the event loop was blocked. `time` is its end in Unix seconds."""

    seconds: float
    cause: Cause
    time: float


def stack(innermost: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of a callback or task that the event loop runs, innermost first."""
    frame = innermost
    while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith(_LOOP_MODULES):
        yield frame
        frame = frame.f_back


def function_name(frame: FrameType) -> str:
    """Return the name of a frame's function with its module."""
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"


def find_function(frames: list[FrameType]) -> Cause:
    """Return the cause that has the outermost function as `work` and the innermost function as `subject`."""
    return Cause(function_name(frames[-1]), function_name(frames[0])) if frames else Cause("the event loop")


class LoopWatchdog:
    """Measures stalls of the running event loop from a thread.

    `find_cause` returns the cause, given the frames that block the loop, innermost first. It is called in the thread.
    `on_stall` is called in the event loop after each stall.
    """

    def __init__(
        self, on_stall: Callable[[Stall], None], find_cause: Callable[[list[FrameType]], Cause] = find_function
    ) -> None:
        self._on_stall, self._find_cause = on_stall, find_cause
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._stalls: deque[Stall] = deque(maxlen=KEPT_STALLS)

    def worst(self) -> Stall | None:
        """Return the longest of the last `KEPT_STALLS` stalls in the last `KEPT_SECONDS` seconds, or None if there is
        none."""
        since = time.time() - KEPT_SECONDS
        return max((stall for stall in self._stalls if stall.time >= since), default=None)

    async def start(self) -> None:
        """Start the thread."""
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=(loop, ident), name="loop watchdog", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._stopped.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._stopped.wait(INTERVAL):
            answered = threading.Event()
            asked_at = time.monotonic()
            try:
                loop.call_soon_threadsafe(answered.set)
                if (cause := self._wait(answered, ident)) is not None:
                    stall = Stall(time.monotonic() - asked_at, cause, time.time())
                    loop.call_soon_threadsafe(self._record, stall)
            except RuntimeError:  # the loop is closed
                return

    def _wait(self, answered: threading.Event, ident: int) -> Cause | None:
        """Wait until the event loop answers. Return the most frequent cause of its delay, or None if there is none."""
        causes: Counter[Cause] = Counter()
        while not answered.wait(STALL) and not self._stopped.is_set():
            if causes.total() < MAX_SAMPLES:
                causes[self._find_cause(list(stack(sys._current_frames().get(ident))))] += 1
        return causes.most_common(1)[0][0] if causes else None

    def _record(self, stall: Stall) -> None:
        self._stalls.append(stall)
        self._on_stall(stall)
