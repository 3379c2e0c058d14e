"""Where the event loop spends its time, as pyinstrument samples it (docs/adr/019-profiles.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pilot.pprof.busy import alone
from pilot.pprof.calls import module_of
from pilot.pprof.stacks import Profile, Stack, StackFrame, ValueType

INTERVAL = 0.01
FINE_INTERVAL = 0.001
"""Seconds between two samples: of a profile, and of a trace, which shows the order of things."""
_WAITING = ("asyncio/runners.py", "asyncio/base_events.py", "uvloop/__init__.py", "selectors.py")
"""Files of the calls that nothing is called from while the loop waits."""


class Sampled(NamedTuple):
    """Stacks in the order in which they were seen, with the seconds that each was there; () while the loop waited."""

    stacks: list[tuple[Stack, float]]
    seconds: float


async def sample(seconds: float, interval: float = INTERVAL) -> Sampled:
    """Returns what the thread of the running event loop does for so long. BusyError where another profile is being made."""
    from pyinstrument import Profiler  # not before somebody asks

    with alone("the profiler"):
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
    """Returns the calls of one record, the outermost of which comes first there; () where the loop waits."""
    calls = tuple(_calls(frames))[::-1]
    return calls if calls and not calls[0].file.endswith(_WAITING) else ()


def _calls(frames: Iterable[str]) -> Iterator[StackFrame]:
    """Yields the calls of frames as "function NUL file NUL first line", with a class and a line behind ^A each; the first is the thread."""
    for frame in frames:
        identifier, *attributes = frame.split("\x01")
        function, file, begins = identifier.split("\x00")
        if file.startswith("<"):
            continue
        kept = {attribute[:1]: attribute[1:] for attribute in attributes}
        owner = f"{kept['c']}." if kept.get("c") else ""
        line = kept.get("l", begins)
        yield StackFrame(f"{module_of(file)}.{owner}{function}", file, int(line) if line.isdigit() else 0, int(begins))


def cpu_profile(sampled: Sampled) -> Profile:
    """Returns the time that was spent by stack; what the loop waited is left out."""
    samples: dict[Stack, list[int]] = {}
    for stack, took in sampled.stacks:
        if stack:
            values = samples.setdefault(stack, [0, 0])
            values[0] += 1
            values[1] += round(took * 1e9)
    kinds = ValueType("samples", "count"), ValueType("cpu", "nanoseconds")
    return Profile(kinds, samples, kinds[1], round(INTERVAL * 1e9), sampled.seconds, shown=1)
