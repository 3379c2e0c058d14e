"""What a process can do once at a time: the interpreter has one hook for profiles, and one for the tracing of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_busy: set[str] = set()


class BusyError(Exception):
    """Somebody else does it now."""


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Does something that nobody else does meanwhile. BusyError where somebody does."""
    if what in _busy:
        raise BusyError(f"{what} is already in use")
    _busy.add(what)
    try:
        yield
    finally:
        _busy.discard(what)
