"""What holds memory, as Python's tracemalloc follows it: from the start where PYTHONTRACEMALLOC says so, else for as long as somebody asks."""

from __future__ import annotations

import asyncio
import pathlib
import resource
import threading
import tracemalloc

from pilot.pprof.busy import alone
from pilot.pprof.calls import module_of
from pilot.pprof.functions import function_at
from pilot.pprof.stacks import Profile, Stack, StackFrame, ValueType

KINDS = (
    ValueType("alloc_objects", "count"),
    ValueType("alloc_space", "bytes"),
    ValueType("inuse_objects", "count"),
    ValueType("inuse_space", "bytes"),
)
ALLOC_SPACE, INUSE_SPACE = 1, 3
PERIOD = ValueType("space", "bytes")
FRAMES = 10
"""Calls of a stack that are kept for every piece of memory."""
_NOT_TRACED = StackFrame("memory that is not traced: ask with seconds=N or start with PYTHONTRACEMALLOC=10", "")


async def sample(seconds: float) -> dict[Stack, list[int]]:
    """Returns the pieces and bytes by stack that were allocated in so many seconds and are still there. BusyError where somebody does so already."""
    with alone("the tracing of memory"):
        if tracemalloc.is_tracing():
            before = await traced()
            await asyncio.sleep(seconds)
            return _grown(before, await traced())
        ended = threading.Event()
        try:
            return await asyncio.to_thread(_traced_until, ended, seconds)
        finally:
            ended.set()


def _traced_until(ended: threading.Event, seconds: float) -> dict[Stack, list[int]]:
    """Returns what is allocated until the end or for so many seconds. A thread of its own keeps the time: a loop that is at work could not, and
    its work takes many times as long while it is traced. Nothing is traced any more when the traces are looked at, for the same reason."""
    tracemalloc.start(FRAMES)
    try:
        ended.wait(seconds)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    return _by_stack(snapshot)


async def now() -> dict[Stack, list[int]]:
    """Returns the pieces and bytes by stack; where nobody traces them, one stack with all memory of the process."""
    if tracemalloc.is_tracing():
        return await traced()
    return {(_NOT_TRACED,): [1, resident()]}


async def traced() -> dict[Stack, list[int]]:
    """Returns the pieces and bytes by stack of what is traced."""
    snapshot = tracemalloc.take_snapshot()
    return await asyncio.to_thread(_by_stack, snapshot)


def _by_stack(snapshot: tracemalloc.Snapshot) -> dict[Stack, list[int]]:
    found: dict[Stack, list[int]] = {}
    for statistic in snapshot.statistics("traceback"):
        stack = tuple(_call(frame) for frame in reversed(statistic.traceback))
        values = found.setdefault(stack, [0, 0])
        values[0] += statistic.count
        values[1] += statistic.size
    return found


def _call(frame: tracemalloc.Frame) -> StackFrame:
    return StackFrame(
        f"{module_of(frame.filename)}.{function_at(frame.filename, frame.lineno)}", frame.filename, frame.lineno
    )


def _grown(before: dict[Stack, list[int]], after: dict[Stack, list[int]]) -> dict[Stack, list[int]]:
    grown = {
        stack: [count - before.get(stack, _NONE)[0], size - before.get(stack, _NONE)[1]]
        for stack, (count, size) in after.items()
    }
    return {stack: values for stack, values in grown.items() if values[1] > 0}


_NONE = [0, 0]


def heap_profile(found: dict[Stack, list[int]], shown: int) -> Profile:
    """Returns what is held by stack. What was freed is not known: what was allocated is what is still there."""
    samples = {stack: (count, size, count, size) for stack, (count, size) in found.items()}
    return Profile(KINDS, samples, PERIOD, shown=shown)


def heap_head(found: dict[Stack, list[int]]) -> str:
    """Returns the first line of a heap profile as text."""
    count, size = (sum(values[n] for values in found.values()) for n in (0, 1))
    return f"heap profile: {count}: {size} [{count}: {size}] @ heap/1"


def resident() -> int:
    """Returns the bytes of memory that the process has."""
    try:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
