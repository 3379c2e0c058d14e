"""What the event loop did one after the other, in the format of trace viewers (ui.perfetto.dev, chrome://tracing, speedscope.app).

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from pilot.pprof.cpu import Sampled
from pilot.pprof.stacks import Stack, StackFrame


def encode_trace(sampled: Sampled) -> bytes:
    """Returns the samples as calls that begin and end, as JSON."""
    process = os.getpid()
    names = [{"name": "thread_name", "ph": "M", "pid": process, "tid": 1, "args": {"name": "event loop"}}]
    events = [{**event, "pid": process, "tid": 1} for event in _events(sampled)]
    return json.dumps({"traceEvents": names + events, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()


def _events(sampled: Sampled) -> Iterator[dict[str, Any]]:
    """Yields where calls begin and end. A call of the same function at the same place of two samples in a row is one."""
    now = 0.0
    open_calls: Stack = ()
    for stack, took in sampled.stacks:
        yield from _changes(open_calls, stack[::-1], now)
        open_calls, now = stack[::-1], now + took
    yield from _changes(open_calls, (), now)


def _changes(before: Stack, after: Stack, now: float) -> Iterator[dict[str, Any]]:
    """Yields the ends and the beginnings between two stacks, the outermost call of which comes first here."""
    alike = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if not _is_same(a, b)),
        min(len(before), len(after)),
    )
    micros = round(now * 1e6)
    yield from ({"name": call.function, "ph": "E", "ts": micros} for call in reversed(before[alike:]))
    yield from (
        {"name": call.function, "ph": "B", "ts": micros, "args": {"file": f"{call.file}:{call.line}"}}
        for call in after[alike:]
    )


def _is_same(one: StackFrame, other: StackFrame) -> bool:
    return (one.function, one.file, one.begins) == (other.function, other.file, other.begins)
