"""The configuration files below a folder, and what tells a changed one without reading it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

SUFFIXES = (".yaml", ".yml", ".json")
_SWAPPED = "..data"
"""The link that a Kubernetes volume swaps to change all its files at once; they are links through it."""


class Signature(NamedTuple):
    """Changes with the content of a file: time of the last write in nanoseconds, size and inode."""

    modified: int
    size: int
    inode: int


UNKNOWN = Signature(-1, -1, -1)
"""That of no file: what could not be read is read at the next look, changed or not."""


def is_configuration(name: str) -> bool:
    """Returns whether a file of that name holds configuration: neither hidden nor temporary, with a known suffix."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#", "~"))


def is_hidden(name: str) -> bool:
    return name.startswith(".")


def shown(path: str) -> str:
    """Returns a path as text that can be printed and sent: bytes of a name that are not UTF-8 are written like \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def sign(path: str) -> Signature | None:
    """Returns the signature of a file, None where there is none or something else; UNKNOWN where it cannot be told now."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return UNKNOWN
    return Signature(found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def scan(folder: str, faults: dict[str, OSError]) -> Iterator[tuple[str, Signature]]:
    """Yields every configuration file at any depth, in no order. Links to files are followed, links to folders are not.

    A folder that goes away meanwhile is empty; one that cannot be read is left out, and added to `faults`.
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
    """Returns whether a path below `folder` is a link to another folder, or leads through one."""
    if os.path.islink(path) and os.path.isdir(path):
        return True
    while len(path := os.path.dirname(path)) > len(folder):
        if os.path.islink(path):
            return True
    return False


def known_part(path: str) -> str:
    """Returns the path, or the nearest folder above it whose name is known: the kernel's notifications lose bytes that are not UTF-8."""
    while "\N{REPLACEMENT CHARACTER}" in path:
        path = os.path.dirname(path)
    return path


def place_of(path: str, folder: str) -> str | None:
    """Returns what to look at again when something happened at a path below `folder`: a file or a folder, None for nothing."""
    parent = folder
    for name in os.path.relpath(path, folder).split(os.sep):
        if name == _SWAPPED:
            return parent
        if is_hidden(name) and name != os.curdir:
            return None
        parent = os.path.join(parent, name)
    return path
