"""What runs at one moment: the tasks of the event loop and the threads, with their stacks. Both are what Go calls goroutines."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from pilot.pprof.calls import DEPTH, call_of, stack_from
from pilot.pprof.stacks import Profile, Stack, ValueType, call_lines

GOROUTINES, THREADS = ValueType("goroutine", "count"), ValueType("threadcreate", "count")


class Running(NamedTuple):
    """A task or a thread. `state`: "running", "waiting" for a task that awaits something, "thread" for a thread."""

    name: str
    state: str
    stack: Stack


def tasks() -> Iterator[Running]:
    """Yields the tasks of the running loop. They are listed at once, and their stacks looked at one by one."""
    current = asyncio.current_task()
    for task in list(asyncio.all_tasks()):
        if not task.done():
            yield Running(task.get_name(), "running" if task is current else "waiting", _stack_of(task.get_coro()))


def threads() -> Iterator[Running]:
    """Yields the threads of the process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        yield Running(names.get(number, f"thread {number}"), "thread", stack_from(frame))


def _stack_of(coroutine: Any) -> Stack:
    """Returns the stack of what awaits: the outermost coroutine awaits the next one, and so on to the innermost."""
    frames = list(itertools.islice(_inwards(coroutine), DEPTH))
    return tuple(call_of(frame) for frame in reversed(frames))


def _inwards(awaiting: Any) -> Iterator[FrameType]:
    """Yields the frames of a coroutine, generator or asynchronous generator, and of what it awaits."""
    while awaiting is not None:
        for frame, awaited in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
            if (found := getattr(awaiting, frame, None)) is not None:
                yield found
                awaiting = getattr(awaiting, awaited, None)
                break
        else:
            return


def counted(running: Iterable[Running], kind: ValueType) -> Profile:
    """Returns how often each stack is there."""
    counts = Counter(found.stack for found in running)
    return Profile((kind,), {stack: (count,) for stack, count in counts.items()}, kind)


def one_by_one(running: Iterable[Running]) -> str:
    """Returns each stack alone, as Go writes goroutines."""
    lines: list[str] = []
    for number, found in enumerate(running, 1):
        lines += [f"goroutine {number} [{found.state}]: {found.name}", *call_lines(found.stack), ""]
    return "\n".join(lines)
