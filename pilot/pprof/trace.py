"""Traces of the event loop for ui.perfetto.dev, chrome://tracing and speedscope.app.

Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from pilot.pprof.cpu import Sampled
from pilot.pprof.stacks import Stack, StackFrame


def encode_trace(sampled: Sampled) -> bytes:
    """Return the samples as JSON, with events for the beginning and the end of each call."""
    process = os.getpid()
    names = [{"name": "thread_name", "ph": "M", "pid": process, "tid": 1, "args": {"name": "event loop"}}]
    events = [{**event, "pid": process, "tid": 1} for event in _events(sampled)]
    return json.dumps({"traceEvents": names + events, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()


def _events(sampled: Sampled) -> Iterator[dict[str, Any]]:
    """Yield the begin and end events. Equal calls at the same depth of consecutive samples are one call."""
    now = 0.0
    open_calls: Stack = ()
    for stack, took in sampled.stacks:
        yield from _changes(open_calls, stack[::-1], now)
        open_calls, now = stack[::-1], now + took
    yield from _changes(open_calls, (), now)


def _changes(before: Stack, after: Stack, now: float) -> Iterator[dict[str, Any]]:
    """Yield the end and begin events for the transition between two stacks. Both have the outermost call first."""
    common = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if not _is_same(a, b)),
        min(len(before), len(after)),
    )
    micros = round(now * 1e6)
    yield from ({"name": call.function, "ph": "E", "ts": micros} for call in reversed(before[common:]))
    yield from (
        {"name": call.function, "ph": "B", "ts": micros, "args": {"file": f"{call.file}:{call.line}"}}
        for call in after[common:]
    )


def _is_same(one: StackFrame, other: StackFrame) -> bool:
    return (one.function, one.file, one.begins) == (other.function, other.file, other.begins)
