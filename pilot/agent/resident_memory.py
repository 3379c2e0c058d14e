"""Memory that the agent needs while it starts and hardly again: there is one agent beside every Envoy, so each megabyte counts often.

Most of it is libraries, of which a few functions run after the start. Their pages are files that the kernel keeps anyway, once for all
agents of a machine; what is given back here comes again by itself where it is used.
"""

from __future__ import annotations

import ctypes
import pathlib
import re
from collections.abc import Iterator

SMAPS = pathlib.Path("/proc/self/smaps")
MADV_DONTNEED = 4
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3
LARGE = 128 * 1024
"""Bytes of an allocation that is mapped for itself and goes back as soon as it is free, as those of large responses should."""
SMALLEST = 256
"""Kilobytes of resident pages for which a call is worth its time."""
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)", re.M)
_LIBC = ctypes.CDLL(None)


def prepare() -> None:
    """Has the C library keep one heap for all threads, and large allocations out of it; does nothing where it has no such settings."""
    if (mallopt := getattr(_LIBC, "mallopt", None)) is not None:
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, LARGE)


def release() -> None:
    """Gives back free memory and pages of libraries; does nothing where the system has no such calls."""
    if (trim := getattr(_LIBC, "malloc_trim", None)) is not None:
        trim(0)
    try:
        smaps = SMAPS.read_text()
    except OSError:
        return
    for start, size in clean_mappings(smaps):
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_DONTNEED)


def clean_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Yields address and size in bytes of the mappings of files that cannot be written and hold nothing but what is in the file."""
    heads = list(_MAPPING.finditer(smaps))
    for number, head in enumerate(heads):
        details = smaps[head.end() : heads[number + 1].start() if number + 1 < len(heads) else len(smaps)]
        as_in_file = (
            head[4] != "0"
            and "w" not in head[3]
            and not _kilobytes(details, "Anonymous")
            and not _kilobytes(details, "Private_Dirty")
        )
        if as_in_file and _kilobytes(details, "Rss") >= SMALLEST:
            start, end = int(head[1], 16), int(head[2], 16)
            yield start, end - start


def _kilobytes(details: str, field: str) -> int:
    """Returns a field of a mapping; one that this kernel does not tell counts as not clean."""
    found = re.search(rf"^{field}:\s+(\d+) kB", details, re.M)
    return int(found[1]) if found else 1
