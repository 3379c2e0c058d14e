"""Mutual exclusion of profilers: the interpreter has one profiling hook and one memory tracer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_busy: set[str] = set()


class BusyError(Exception):
    """The profiler is already in use."""


@contextlib.contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold a profiler while the context is open. Raise BusyError if the profiler is in use."""
    if name in _busy:
        raise BusyError(f"{name} is already in use")
    _busy.add(name)
    try:
        yield
    finally:
        _busy.discard(name)
