"""CPU profiles of the event loop, sampled by pyinstrument (docs/adr/019-profiles.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pilot.pprof.busy import exclusive
from pilot.pprof.calls import module_of
from pilot.pprof.stacks import Profile, Stack, StackFrame, ValueType

INTERVAL = 0.01
FINE_INTERVAL = 0.001
"""Sampling interval of a trace in seconds. It is short because a trace shows the order of events."""
_WAITING = ("asyncio/runners.py", "asyncio/base_events.py", "uvloop/__init__.py", "selectors.py")
"""Files that contain the innermost call while the event loop waits."""


class Sampled(NamedTuple):
    """Stacks in the order of sampling, each with its duration in seconds.

    A stack is () while the event loop waited.
    """

    stacks: list[tuple[Stack, float]]
    seconds: float


async def sample(seconds: float, interval: float = INTERVAL) -> Sampled:
    """Sample the thread of the running event loop for some seconds. Raise BusyError if a profile is being taken."""
    from pyinstrument import Profiler  # imported only when a profile is requested

    with exclusive("the profiler"):
        profiler = Profiler(interval=interval, async_mode="disabled")
        profiler.start()
        try:
            await asyncio.sleep(seconds)
        finally:
            session = profiler.stop()
        records = list(session.frame_records)
        return await asyncio.to_thread(
            lambda: Sampled([(stack_of(frames), took) for frames, took in records], session.duration)
        )


def stack_of(frames: Iterable[str]) -> Stack:
    """Return the stack of one record, or () if the event loop waits. `frames` has the outermost call first."""
    calls = tuple(_calls(frames))[::-1]
    return calls if calls and not calls[0].file.endswith(_WAITING) else ()


def _calls(frames: Iterable[str]) -> Iterator[StackFrame]:
    """Yield the calls in frames of the form "function NUL file NUL first line". Attributes are separated by ^A."""
    for frame in frames:
        identifier, *attributes = frame.split("\x01")
        function, file, begins = identifier.split("\x00")
        if file.startswith("<"):
            continue
        values = {attribute[:1]: attribute[1:] for attribute in attributes}  # c: class, l: line
        owner = f"{values['c']}." if values.get("c") else ""
        line = values.get("l", begins)
        yield StackFrame(f"{module_of(file)}.{owner}{function}", file, int(line) if line.isdigit() else 0, int(begins))


def cpu_profile(sampled: Sampled) -> Profile:
    """Return the time spent in each stack, excluding the time in which the event loop waited."""
    samples: dict[Stack, list[int]] = {}
    for stack, took in sampled.stacks:
        if stack:
            values = samples.setdefault(stack, [0, 0])
            values[0] += 1
            values[1] += round(took * 1e9)
    kinds = ValueType("samples", "count"), ValueType("cpu", "nanoseconds")
    return Profile(kinds, samples, kinds[1], round(INTERVAL * 1e9), sampled.seconds, shown=1)
