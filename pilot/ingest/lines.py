"""The lines that the values of a document are on, for messages."""

from __future__ import annotations

import re
from typing import Any

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
Place = int | tuple[int, Any]
"""The line of a value in its file, from 1; with the places inside of it where it is written over several lines."""
Inside = dict[str, Place] | list[Place] | None
"""The places of the keys of a mapping, or of the items of a list; None for a single value."""


class Outline:
    """The lines of one document. `inside` has those of its places, which are counted from so many lines `before` in the file."""

    def __init__(self, inside: Inside = None, before: int = 0) -> None:
        self._inside, self._before = inside, before

    def inside(self) -> Inside:
        """Returns the places inside of the document, as they are counted."""
        return self._inside

    def line(self, start: int, path: str) -> int:
        """Returns the line of a path (`spec.http[0].match`) in the file, from 1, of a document that begins at a line.

        A path that is not there, as of a field that is missing, is where its nearest parent is.
        """
        line = start
        inside = self.inside() if path else None
        for key, name in _PART.findall(path):
            place = _find(inside, key or name)
            if place is None:
                break
            at, inside = place if isinstance(place, tuple) else (place, None)
            line = self._before + at
        return line


def _find(inside: Inside, part: str) -> Place | None:
    """Returns the place of a part of a path."""
    if isinstance(inside, list):
        return inside[int(part)] if part.isascii() and part.isdecimal() and int(part) < len(inside) else None
    return inside.get(part) if inside is not None else None
