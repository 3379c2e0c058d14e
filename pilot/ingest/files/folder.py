"""Finds the configuration files below a folder, and detects changed ones without reading them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

SUFFIXES = (".yaml", ".yml", ".json")
_SWAPPED = "..data"
"""The symbolic link that a Kubernetes volume replaces to update all its files atomically."""


class Signature(NamedTuple):
    """Modification time in nanoseconds, size and inode of a file. It changes with the content."""

    modified: int
    size: int
    inode: int


UNKNOWN = Signature(-1, -1, -1)
"""Signature that no file has, so an unreadable file is read again at the next scan."""


def is_configuration(name: str) -> bool:
    """Return True if a file with this name holds configuration: a known suffix, not hidden, not temporary."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#", "~"))


def is_hidden(name: str) -> bool:
    return name.startswith(".")


def sign(path: str) -> Signature | None:
    """Return the signature of a file, None if it is not a regular file, or UNKNOWN if it is inaccessible."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return UNKNOWN
    return Signature(status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def scan(folder: str, faults: dict[str, OSError]) -> Iterator[tuple[str, Signature]]:
    """Yield all configuration files below a folder, unordered. Links to files are followed, links to folders are not.

    A folder that disappears meanwhile is treated as empty. An unreadable folder is skipped and added to `faults`.
    """
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as fault:
        faults[folder] = fault
        return
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from scan(entry.path, faults)
        elif is_configuration(entry.name) and (signature := sign(entry.path)) is not None:
            yield entry.path, signature


def is_linked(path: str, folder: str) -> bool:
    """Return True if a path below `folder` is a link to a folder, or passes through one."""
    if os.path.islink(path) and os.path.isdir(path):
        return True
    while len(path := os.path.dirname(path)) > len(folder):
        if os.path.islink(path):
            return True
    return False


def valid_parent(path: str) -> str:
    """Return the path, or its nearest parent with a valid name: file notifications lose bytes that are not UTF-8."""
    while "\N{REPLACEMENT CHARACTER}" in path:
        path = os.path.dirname(path)
    return path


def place_of(path: str, folder: str) -> str | None:
    """Return the file or folder to scan after a notification for a path below `folder`, or None to ignore it."""
    parent = folder
    for name in os.path.relpath(path, folder).split(os.sep):
        if name == _SWAPPED:
            return parent
        if is_hidden(name) and name != os.curdir:
            return None
        parent = os.path.join(parent, name)
    return path
