"""Settings of glibc's malloc."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from pilot.lib.malloc import find_trim

GLIBC = "glibc" in platform.libc_ver()[0]
LARGE_BLOCKS = """
import ctypes
from pilot.lib.malloc import LARGE, map_large_allocations
map_large_allocations()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(2):  # without the setting, malloc takes the second block from the heap
    block = libc.malloc(ctypes.c_size_t(8 * LARGE))
    mappings = [line.split() for line in open("/proc/self/maps")]
    bounds = [[int(text, 16) for text in fields[0].split("-")] for fields in mappings if "[heap]" in fields]
    print(any(start <= block < end for start, end in bounds))
    libc.free(block)
"""


def test_c_library_provides_malloc_trim() -> None:
    assert (find_trim() is not None) == GLIBC


@pytest.mark.skipif(not GLIBC, reason="only glibc has the setting")
def test_large_allocations_are_not_part_of_the_heap() -> None:
    shown = subprocess.run([sys.executable, "-c", LARGE_BLOCKS], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
