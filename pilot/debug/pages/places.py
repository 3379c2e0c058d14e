"""The places in files where objects and their fields are defined, for debug pages."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from pilot.config.problem import ObjectRef
from pilot.debug.slices import for_each
from pilot.debug.sources import Sources

MAX_LOCATED = 2_000
"""Maximum number of objects for which a page shows lines, because files must be read again to find them."""
MAX_BYTES = 32 << 20
"""Maximum size of the files that are read for a page. Objects in further files have no lines."""
Field = tuple[ObjectRef, str]
"""An object, and the path of one of its fields, or "" for the object itself."""


class FilePlace(NamedTuple):
    """A file, and a line in it from 1, or 0 if the line is unknown."""

    file: str
    line: int = 0


async def find_places(sources: Sources, fields: Iterable[Field]) -> dict[Field, FilePlace]:
    """Return the place of each field whose object is from a file.

    The lines are those in the current text of the file, which differs from the object in force if it has an error.
    """
    places: dict[Field, FilePlace] = {}
    by_file: dict[str, list[Field]] = {}
    objects: set[ObjectRef] = set()

    def add(field: Field) -> None:
        document = sources.document_of(field[0])
        if field in places or not os.path.isabs(document):
            return
        places[field] = FilePlace(document)
        if len(objects) < MAX_LOCATED or field[0] in objects:
            objects.add(field[0])
            by_file.setdefault(document, []).append(field)

    await for_each(fields, add)
    size = 0
    for file, in_file in by_file.items():
        with contextlib.suppress(OSError):
            size += os.stat(file).st_size
        if size <= MAX_BYTES:
            lines = await asyncio.to_thread(sources.find_lines, file, in_file)
            places |= {field: FilePlace(file, line) for field, line in lines.items()}
    return places
