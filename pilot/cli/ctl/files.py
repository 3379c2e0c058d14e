"""Input files of commands: file names, directories, or standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from pilot.cli.ctl.client import CommandError
from pilot.ingest.files.folder import is_configuration, is_hidden

STANDARD_INPUT = "-"


def read_files(paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of files, keyed by name. All configuration files below a directory are included.

    Raise CommandError if a file is unreadable.
    """
    return {path: _read(path) for argument in paths for path in _below(argument)}


def _below(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        yield from (os.path.join(folder, name) for name in sorted(names) if is_configuration(name))


def _read(path: str) -> bytes:
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
