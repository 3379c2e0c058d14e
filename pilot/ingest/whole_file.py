"""Writes a file of our own as a whole."""

from __future__ import annotations

import os


def write_whole(path: str, data: bytes) -> None:
    """Writes a file that its owner alone may read: after a crash there is the old one or the new one."""
    descriptor = os.open(f"{path}.next", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.next", path)
