"""Reads a file of a user, whatever may have taken its place."""

from __future__ import annotations

import os
import stat

from pilot.ingest.folder import Signature

LARGEST = 64 * 1024 * 1024
"""Bytes of a file that are read where nobody says."""
_BLOCK = 1 << 20


class NoFile(OSError):
    """What is there is no file: a pipe, a device, a folder."""


class TooLarge(Exception):
    """The file has more bytes than are read."""


def read_file(path: str, limit: int) -> tuple[bytes, Signature]:
    """Returns the bytes, at most `limit`, and the signature of the file that was opened. Raises OSError, NoFile or TooLarge.

    A pipe that took the place of a file since somebody looked is opened without waiting for its other end, and not read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NoFile("it is no file")
        data = bytearray()
        while found.st_size <= limit and (block := os.read(descriptor, _BLOCK)):
            data += block
            if len(data) > limit:
                break
        if max(found.st_size, len(data)) > limit:
            raise TooLarge(f"it has more than {limit} bytes")
        return bytes(data), Signature(found.st_mtime_ns, found.st_size, found.st_ino)
    finally:
        os.close(descriptor)
