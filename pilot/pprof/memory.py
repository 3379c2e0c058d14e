"""Heap profiles from tracemalloc. With PYTHONTRACEMALLOC, memory is traced since startup, or else during a request."""

from __future__ import annotations

import asyncio
import pathlib
import resource
import threading
import tracemalloc

from pilot.pprof.busy import exclusive
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
"""Number of calls that are recorded for each allocation."""
_NOT_TRACED = StackFrame("untraced memory: request the profile with seconds=N, or start with PYTHONTRACEMALLOC=10", "")


async def sample(seconds: float) -> dict[Stack, list[int]]:
    """Return the number and bytes of allocations for each stack.

    The allocations are those made within some seconds that still exist afterwards. Raise BusyError if memory is already
    being traced.
    """
    with exclusive("the memory tracer"):
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
    """Return the number and bytes of allocations for each stack. Trace until the event is set or for some seconds.

    The function must run in its own thread, because tracing slows down a busy event loop so much that it could not keep
    the time. For the same reason, tracing stops before the traces are evaluated.
    """
    tracemalloc.start(FRAMES)
    try:
        ended.wait(seconds)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    return _by_stack(snapshot)


async def now() -> dict[Stack, list[int]]:
    """Return the number and bytes of allocations for each stack.

    If memory is not traced, return one stack with all memory of the process.
    """
    if tracemalloc.is_tracing():
        return await traced()
    return {(_NOT_TRACED,): [1, resident()]}


async def traced() -> dict[Stack, list[int]]:
    """Return the number and bytes of traced allocations for each stack."""
    snapshot = tracemalloc.take_snapshot()
    return await asyncio.to_thread(_by_stack, snapshot)


def _by_stack(snapshot: tracemalloc.Snapshot) -> dict[Stack, list[int]]:
    samples: dict[Stack, list[int]] = {}
    for statistic in snapshot.statistics("traceback"):
        stack = tuple(_call(frame) for frame in reversed(statistic.traceback))
        values = samples.setdefault(stack, [0, 0])
        values[0] += statistic.count
        values[1] += statistic.size
    return samples


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


def heap_profile(by_stack: dict[Stack, list[int]], shown: int) -> Profile:
    """Return a heap profile. Freed memory is not recorded, so allocated memory and memory in use are equal."""
    samples = {stack: (count, size, count, size) for stack, (count, size) in by_stack.items()}
    return Profile(KINDS, samples, PERIOD, shown=shown)


def heap_head(by_stack: dict[Stack, list[int]]) -> str:
    """Return the first line of a heap profile in text form."""
    count, size = (sum(values[n] for values in by_stack.values()) for n in (0, 1))
    return f"heap profile: {count}: {size} [{count}: {size}] @ heap/1"


def resident() -> int:
    """Return the resident memory of the process in bytes."""
    try:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
