"""Line numbers of the values in a document, for problem reports.

The JSON decoder does not report line numbers, so for JSON they are computed on demand.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

_PART = re.compile(r"\[([^\]]*)\]?|([^.\[\]]+)")
Place = int | tuple[int, Any]
"""The line of a value in its file, from 1. For a mapping or list, also the places inside it."""
Inside = dict[str, Place] | list[Place] | None
"""The places of the keys of a mapping, or of the items of a list. None for a scalar."""
_TOKEN = re.compile(rb'\n|[{}\[\]]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,:"{}\[\]]+')
_ITEM = re.compile(r"items\[([0-9]+)\]\.?")
Container = dict[str, Place] | list[Place]


class Outline:
    """The line numbers of one document."""

    def __init__(self, inside: Inside = None) -> None:
        self._inside = inside

    def inside(self) -> Inside:
        """Return the places inside the document."""
        return self._inside

    def line(self, start: int, path: str) -> int:
        """Return the line in the file, from 1, of a path such as `spec.http[0].match`.

        `start` is the first line of the document. If the path does not exist, for example because a field is missing,
        return the line of its nearest parent.
        """
        line = start
        inside = self.inside() if path else None
        for key, name in _PART.findall(path):
            place = _find_place(inside, key or name)
            if place is None:
                break
            line, inside = (place, None) if isinstance(place, int) else place
        return line


def _find_place(inside: Inside, part: str) -> Place | None:
    if isinstance(inside, list):
        return inside[int(part)] if part.isascii() and part.isdecimal() and int(part) < len(inside) else None
    return inside.get(part) if inside is not None else None


def find_places(data: bytes, line: int) -> Inside:
    """Return the places inside a valid JSON text, or None if it is a scalar. `line` is the first line of the text."""
    outermost: Container | None = None
    parents: list[Container | None] = []
    here: Container | None = None
    key: str | None = None
    key_line = 0
    for token in map(operator.itemgetter(0), _TOKEN.finditer(data)):
        if token == b"\n":
            line += 1
            continue
        if token in b"}]":
            here = parents.pop()
            continue
        if key is None and type(here) is dict:
            key, key_line = _text(token), line
            continue
        inside: Container | None = {} if token == b"{" else [] if token == b"[" else None
        if isinstance(here, list):
            here.append(line if inside is None else (line, inside))
        elif here is not None and key is not None:
            here[key] = key_line if inside is None else (key_line, inside)
            key = None
        if inside is not None:
            outermost = inside if outermost is None else outermost
            parents.append(here)
            here = inside
    return outermost


def _text(token: bytes) -> str:
    return str(msgspec.json.decode(token)) if b"\\" in token else token[1:-1].decode()


class JsonOutline(Outline):
    """The line numbers of a JSON text. `line` is its first line in the file."""

    def __init__(self, data: bytes, line: int = 1) -> None:
        super().__init__()
        self._data: bytes | None = data
        self._line = line

    def inside(self) -> Inside:
        data, self._data = self._data, None
        if data is not None and b"\n" in data.rstrip():  # else the text is a single line
            self._inside = find_places(data, self._line)
        return self._inside


class JsonListOutline(Outline):
    """The line numbers of a large JSON list. An item is scanned on demand, and only the last scan is cached."""

    def __init__(self, data: bytes, items: Sequence[msgspec.Raw]) -> None:
        super().__init__()
        self._data, self._items = data, items
        self._starts: list[int] = []
        self._last: tuple[int, Outline] = -1, Outline()

    def line(self, start: int, path: str) -> int:
        item = _ITEM.match(path)
        number = int(item[1]) if item is not None else len(self._items)
        if item is None or number >= len(self._items):
            return start
        self._starts = self._starts or list(self._find_starts())
        if self._last[0] != number:
            self._last = number, JsonOutline(bytes(self._items[number]), self._starts[number])
        return self._last[1].line(self._starts[number], path[item.end() :])

    def _find_starts(self) -> Iterator[int]:
        """Yield the first line of each item, from 1. Items are separated only by a comma and white space."""
        end = self._data.find(bytes(self._items[0]))
        line = self._data.count(b"\n", 0, end) + 1
        for text in map(bytes, self._items):
            begin = self._data.find(text, end)
            line += self._data.count(b"\n", end, begin)
            yield line
            end = begin + len(text)
            line += text.count(b"\n")
