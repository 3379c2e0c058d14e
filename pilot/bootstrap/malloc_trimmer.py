"""Memory that is no longer used goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable


def find_trim() -> Callable[[int], object] | None:
    """Returns the C library's malloc_trim; None where it has none, as musl."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None


class GiveBack:
    """A job for a sweeper. It runs beside the event loop, which goes on meanwhile."""

    def __init__(self, trim: Callable[[int], object] | None) -> None:
        self._trim = trim

    def __call__(self) -> None:
        if self._trim is not None:
            asyncio.get_running_loop().run_in_executor(None, self._trim, 0)
