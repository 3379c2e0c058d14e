"""Reduces the agent's resident memory after startup, because one agent runs next to every Envoy.

Most of the memory is file-backed pages of libraries that are rarely used after startup. The kernel shares these pages
between all agents on a machine and loads them again on access.
"""

from __future__ import annotations

import ctypes
import pathlib
import re
from collections.abc import Iterator

from pilot.lib.malloc import find_trim

SMAPS = pathlib.Path("/proc/self/smaps")
MADV_DONTNEED = 4
MIN_RESIDENT_KB = 256
"""Minimum resident size in kB of a mapping to release."""
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)", re.M)
_LIBC = ctypes.CDLL(None)


def release_memory() -> None:
    """Return free heap memory and clean library pages to the system, as far as the platform supports it."""
    if (trim := find_trim()) is not None:
        trim(0)
    try:
        smaps = SMAPS.read_text()
    except OSError:
        return
    for start, size in clean_mappings(smaps):
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_DONTNEED)


def clean_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield the address and the size in bytes of each read-only file mapping without modified pages."""
    headers = list(_MAPPING.finditer(smaps))
    for index, header in enumerate(headers):
        details = smaps[header.end() : headers[index + 1].start() if index + 1 < len(headers) else len(smaps)]
        is_clean = (
            header[4] != "0"
            and "w" not in header[3]
            and not _kilobytes(details, "Anonymous")
            and not _kilobytes(details, "Private_Dirty")
        )
        if is_clean and _kilobytes(details, "Rss") >= MIN_RESIDENT_KB:
            start, end = int(header[1], 16), int(header[2], 16)
            yield start, end - start


def _kilobytes(details: str, field: str) -> int:
    """Return the value in kB of a field of a mapping.

    Return 1 if the kernel does not report the field, so that the mapping is not considered clean.
    """
    words = next((line.split() for line in details.splitlines() if line.startswith(f"{field}:")), [])
    return int(words[1]) if words[2:] == ["kB"] else 1
