"""Conversion of Python frames to stacks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from types import FrameType

from pilot.pprof.stacks import Stack, StackFrame

DEPTH = 100
_ROOTS = ("/site-packages/", "/dist-packages/", "/lib/python")


@functools.lru_cache(10_000)
def module_of(file: str) -> str:
    """Return the name of the module in a file, such as pilot.xds.push.pusher or asyncio.events."""
    for root in _ROOTS:
        if (at := file.rfind(root)) >= 0:
            file = file[at + len(root) :]
            break
    else:
        parts = file.split("/")
        ours = next(
            (n for n, part in enumerate(parts) if part in ("pilot", "webhook", "gotemplate", "ca", "protos")),
            max(0, len(parts) - 1),
        )
        file = "/".join(parts[ours:])
    if file[:1].isdigit():  # the rest of /lib/python3.11/
        file = file.partition("/")[2]
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def call_of(frame: FrameType) -> StackFrame:
    """Return a Python frame as an entry of a stack."""
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    return StackFrame(
        f"{module_of(code.co_filename)}.{name}", code.co_filename, frame.f_lineno or 0, code.co_firstlineno
    )


def stack_from(frame: FrameType | None) -> Stack:
    """Return the stack that starts at a frame and continues with its callers. It has at most `DEPTH` calls."""
    return tuple(call_of(outer) for outer in itertools.islice(_outwards(frame), DEPTH))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
