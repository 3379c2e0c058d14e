"""Settings of glibc's malloc, and the release of its free memory.

The functions do nothing with other C libraries, such as musl. https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_LIBC = ctypes.CDLL(None)
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
LARGE = 128 * 1024
"""Minimum size in bytes of an allocation that gets its own mapping, which is unmapped when the allocation is freed."""


def map_large_allocations() -> None:
    """Give each large allocation its own mapping, whatever was freed before.

    By default, malloc takes larger and larger allocations from the heap. Responses of megabytes that it frees there
    leave gaps between small objects, which are not returned to the system.
    """
    _set_option(_M_MMAP_THRESHOLD, LARGE)


def use_one_arena() -> None:
    """Allocate the memory of all threads from one heap. Threads that allocate at the same time wait for each other."""
    _set_option(_M_ARENA_MAX, 1)


def _set_option(option: int, value: int) -> None:
    if (mallopt := getattr(_LIBC, "mallopt", None)) is not None:
        mallopt(option, value)


def find_trim() -> Callable[[int], object] | None:
    """Return malloc_trim, or None if the C library has none."""
    trim: Callable[[int], object] | None = getattr(_LIBC, "malloc_trim", None)
    return trim
