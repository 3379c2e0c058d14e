"""Reads users' files safely, even if a path is replaced with a pipe or a device. Writes files atomically."""

from __future__ import annotations

import os
import stat

from pilot.ingest.files.folder import Signature

LARGEST = 64 * 1024 * 1024
"""Default limit for the size of a file, in bytes."""
_BLOCK = 1 << 20


class NoFile(OSError):
    """The path is a pipe, a device or a folder instead of a regular file."""


class TooLarge(Exception):
    """The file exceeds the size limit."""


def read_file(path: str, limit: int) -> tuple[bytes, Signature]:
    """Return the content and the signature of a file.

    Raise OSError if it cannot be read, NoFile if it is not a regular file, or TooLarge if it exceeds `limit` bytes.
    Opening the file never blocks, even if the path has become a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NoFile("not a regular file")
        data = bytearray()
        while status.st_size <= limit and (block := os.read(descriptor, _BLOCK)):
            data += block
            if len(data) > limit:
                break
        if max(status.st_size, len(data)) > limit:
            raise TooLarge(f"the file is larger than {limit} bytes")
        return bytes(data), Signature(status.st_mtime_ns, status.st_size, status.st_ino)
    finally:
        os.close(descriptor)


def write_file(path: str, data: bytes) -> None:
    """Write a file atomically, readable only by its owner. After a crash, it has either the old or the new content."""
    descriptor = os.open(f"{path}.next", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.next", path)
