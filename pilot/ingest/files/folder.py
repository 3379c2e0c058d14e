"""Finds the configuration files below a folder, and detects changed files without reading them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from pilot.lib.text import printable_path

SUFFIXES = (".yaml", ".yml", ".json")
_SWAPPED = "..data"
"""The symbolic link that a Kubernetes volume replaces to update all of its files atomically."""


class Signature(NamedTuple):
    """The modification time in nanoseconds, the size and the inode of a file. They are compared to detect a changed
    file."""

    modified: int
    size: int
    inode: int


UNKNOWN = Signature(-1, -1, -1)
"""A signature that no file has. An unreadable file has this signature, so that the next scan reads it again."""


def is_configuration(name: str) -> bool:
    """Return whether a file with this name contains configuration.

    It must have a known suffix and be neither hidden nor temporary.
    """
    return name.endswith(SUFFIXES) and not name.startswith((".", "#", "~"))


def is_hidden(name: str) -> bool:
    return name.startswith(".")


def sign(path: str) -> Signature | None:
    """Return the signature of a file. Return None if it is not a regular file, or UNKNOWN if it is inaccessible."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return UNKNOWN
    return Signature(status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def why_unusable(path: str) -> str:
    """Return why a path is not a file, or "" if it is a file or a folder, or if there is nothing at the path."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return f"broken symbolic link to {printable_path(os.readlink(path))}"
        return ""
    except OSError:
        return ""  # reading the path reports the reason
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "not a regular file"


def scan(folder: str, faults: dict[str, OSError]) -> Iterator[tuple[str, Signature]]:
    """Yield all configuration files below a folder, in any order.

    Links to files are followed, and links to folders are not. Pipes, devices and broken links have the signature
    UNKNOWN. A folder that disappears during the scan is treated as empty. An unreadable folder is skipped and added to
    `faults`.
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
        elif is_configuration(entry.name):
            signature = sign(entry.path)
            if signature is not None or why_unusable(entry.path):
                yield entry.path, signature or UNKNOWN


def is_linked(path: str, folder: str) -> bool:
    """Return whether a path below `folder` is a link to a folder, or passes through a link."""
    if os.path.islink(path) and os.path.isdir(path):
        return True
    while len(path := os.path.dirname(path)) > len(folder):
        if os.path.islink(path):
            return True
    return False


def valid_parent(path: str) -> str:
    """Return the path or, if its name is not valid UTF-8, its nearest parent with a valid name.

    File notifications do not preserve bytes that are not UTF-8.
    """
    while "\N{REPLACEMENT CHARACTER}" in path:
        path = os.path.dirname(path)
    return path


def place_of(path: str, folder: str) -> str | None:
    """Return the file or folder to scan after a notification for a path below `folder`.

    Return None if the notification can be ignored.
    """
    parent = folder
    for name in os.path.relpath(path, folder).split(os.sep):
        if name == _SWAPPED:
            return parent
        if is_hidden(name) and name != os.curdir:
            return None
        parent = os.path.join(parent, name)
    return path
