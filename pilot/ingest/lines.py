"""Line numbers of the values in a document, for messages."""

from __future__ import annotations

import re
from typing import Any

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
Place = int | tuple[int, Any]
"""The line of a value in its file, from 1, with the places inside it if it is a mapping or list."""
Inside = dict[str, Place] | list[Place] | None
"""The places of the keys of a mapping or the items of a list. None for a single value."""


class Outline:
    """The lines of one document."""

    def __init__(self, inside: Inside = None) -> None:
        self._inside = inside

    def inside(self) -> Inside:
        """Return the places inside the document."""
        return self._inside

    def line(self, start: int, path: str) -> int:
        """Return the line of a path such as `spec.http[0].match` in the file, from 1. `start` is the first line of the
        document.

        If the path does not exist, for example because a field is missing, return the line of its nearest parent.
        """
        line = start
        inside = self.inside() if path else None
        for key, name in _PART.findall(path):
            place = _find_place(inside, key or name)
            if place is None:
                break
            line, inside = place if isinstance(place, tuple) else (place, None)
        return line


def _find_place(inside: Inside, part: str) -> Place | None:
    if isinstance(inside, list):
        return inside[int(part)] if part.isascii() and part.isdecimal() and int(part) < len(inside) else None
    return inside.get(part) if inside is not None else None
