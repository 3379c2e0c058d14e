"""Atomic writes of files."""

from __future__ import annotations

import os


def write_whole(path: str, data: bytes) -> None:
    """Write a file atomically, readable only by its owner. A crash leaves either the old content or the new."""
    descriptor = os.open(f"{path}.next", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.next", path)
