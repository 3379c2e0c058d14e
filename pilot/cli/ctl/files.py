"""Input files of commands: file names, directories, or standard input."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import click

from pilot.cli.ctl.client import CommandError
from pilot.ingest.files.folder import SUFFIXES, is_configuration, is_hidden, why_unusable
from pilot.lib.similar_path import suggest_path
from pilot.lib.text import printable_path

STANDARD_INPUT = "-"
_TEMPLATES = (".tmpl", ".tpl", ".gotmpl", ".j2", ".jinja")


def read_files(paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of files, keyed by name. All configuration files below a directory are included, sorted by
    path as in the control plane. Broken links, pipes and devices in a directory are skipped with a warning.

    Raise CommandError if a file or folder is unreadable, or if a directory contains no configuration files.
    """
    return {path: read_file(path) for argument in paths for path in _below(argument)}


def write_file(path: str, text: str, mode: int = 0o666) -> None:
    """Write a text to a file, which gets this mode if it is new. Raise CommandError if the file cannot be written."""
    try:
        with open(path, "w", encoding="utf-8", opener=functools.partial(os.open, mode=mode)) as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error


def _below(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    files, others = [], Counter[str]()
    for folder, folders, names in os.walk(path, onerror=_fail):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        paths = (os.path.join(folder, name) for name in sorted(names) if is_configuration(name))
        for file in paths:
            if reason := why_unusable(file):
                click.echo(f"! {printable_path(file)} was not read: {reason}", err=True)
            elif not os.path.isdir(file):
                files.append(file)
        others.update(os.path.splitext(name)[1] for name in names if not is_configuration(name))
    if not files:
        raise CommandError(f"{path} contains no {' or '.join(SUFFIXES)} files, so nothing was read{_describe(others)}")
    return sorted(files)


def _describe(others: Counter[str]) -> str:
    """Return a note about the files in a directory that are not read."""
    if not others:
        return "; it contains no files at all"
    suffix, number = others.most_common(1)[0]
    note = f"; it contains {number} {suffix or 'other'} file{'' if number == 1 else 's'}"
    return f"{note}: render templates first, for example with `helm template`" if suffix in _TEMPLATES else note


def _fail(error: OSError) -> NoReturn:
    raise CommandError(f"cannot read {error.filename}: {error.strerror or error}") from error


def read_file(path: str) -> bytes:
    """Return the content of a file or of standard input. Raise CommandError if it is unreadable."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        is_url = path.startswith(("https://", "http://"))
        reason = f"it is a URL; download it first, for example with curl -O {path}" if is_url else error.strerror
        raise CommandError(f"cannot read {path}: {reason or error}{suggest_path(path)}") from error
