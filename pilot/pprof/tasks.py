"""Snapshots of event loop tasks and threads with their stacks, which replace Go's goroutines."""

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
    """A task or a thread. `state` is "running", "waiting" for a task that awaits something, or "thread"."""

    name: str
    state: str
    stack: Stack


def tasks() -> Iterator[Running]:
    """Yield the tasks of the running event loop. They are listed at once, and their stacks are read one by one."""
    current = asyncio.current_task()
    for task in list(asyncio.all_tasks()):
        if not task.done():
            yield Running(task.get_name(), "running" if task is current else "waiting", _stack_of(task.get_coro()))


def threads() -> Iterator[Running]:
    """Yield the threads of the process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        yield Running(names.get(number, f"thread {number}"), "thread", stack_from(frame))


def _stack_of(coroutine: Any) -> Stack:
    """Return the stack of a chain of coroutines, each of which awaits the next one."""
    frames = list(itertools.islice(_inwards(coroutine), DEPTH))
    return tuple(call_of(frame) for frame in reversed(frames))


def _inwards(awaiting: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine, generator or asynchronous generator, followed by those of what it awaits."""
    while awaiting is not None:
        for frame, awaited in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
            if (current := getattr(awaiting, frame, None)) is not None:
                yield current
                awaiting = getattr(awaiting, awaited, None)
                break
        else:
            return


def counted(running: Iterable[Running], kind: ValueType) -> Profile:
    """Return the number of tasks or threads with each stack."""
    counts = Counter(item.stack for item in running)
    return Profile((kind,), {stack: (count,) for stack, count in counts.items()}, kind)


def one_by_one(running: Iterable[Running]) -> str:
    """Return each stack separately, in the format in which Go prints goroutines."""
    lines: list[str] = []
    for number, item in enumerate(running, 1):
        lines += [f"goroutine {number} [{item.state}]: {item.name}", *call_lines(item.stack), ""]
    return "\n".join(lines)
