"""Where in a text a path of one of its documents is, for messages."""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from pilot.ingest.block_yaml import NotSimple, Places, read_block

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = ("", "~", "null", "Null", "NULL")
Lines = dict[str, tuple[int, Any]] | list[tuple[int, Any]] | None
"""Line and inside of each key of a mapping, or of each item of a list; None for a single value."""


class Outline:
    """The lines of the documents of a text that hold anything. The text is parsed at the first question, and once."""

    __slots__ = ("_data", "_lines", "_roots")

    def __init__(self, data: bytes, lines: int = 0) -> None:
        self._data, self._lines = data, lines
        self._roots: list[Lines] | None = None

    def line(self, document: int, start: int, path: str) -> int:
        """Returns the line of a path (`spec.http[0].match`) in the file, from 1.

        `document` is an index, `start` the line that the document begins at, and `lines` are before the text in its file. A path that
        is not there, as of a field that is missing, is where its nearest parent is.
        """
        line = start
        inside = self._root(document) if path else None
        for key, name in _PART.findall(path):
            found = _find(inside, key or name)
            if found is None:
                break
            line, inside = self._lines + found[0], found[1]
        return line

    def _root(self, document: int) -> Lines:
        if self._roots is None:
            try:
                self._roots = _read(self._data)
            except (yaml.YAMLError, RecursionError):  # JSON that is no YAML, or nested too deeply
                self._roots = []
        return self._roots[document] if document < len(self._roots) else None


def _find(inside: Lines, part: str) -> tuple[int, Any] | None:
    """Returns line and inside of a part of a path."""
    if isinstance(inside, list):
        return inside[int(part)] if part.isascii() and part.isdecimal() and int(part) < len(inside) else None
    return inside.get(part) if inside is not None else None


def _read(data: bytes) -> list[Lines]:
    """Returns the lines of every document that holds anything."""
    try:
        root, line = read_block(data, Places())
    except NotSimple:
        return list(parse(data))
    return [root] if line else []


def parse(data: bytes) -> Iterator[Lines]:
    """Yields the lines of every document that holds anything."""
    events = yaml.parse(data, Loader=_PARSER)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            first = next(events)
            inside = _inside(first, events, {})
            if not (isinstance(first, yaml.ScalarEvent) and first.implicit[0] and first.value in _NULLS):
                yield inside


def _inside(event: Any, events: Iterator[Any], anchors: dict[str, Lines]) -> Lines:
    """Returns the lines inside of the value that begins with an event, and takes its events away."""
    kind = type(event)
    if kind is yaml.ScalarEvent:
        return None
    if kind is yaml.AliasEvent:
        return anchors.get(event.anchor)
    found = _keys(events, anchors) if kind is yaml.MappingStartEvent else _items(events, anchors)
    if event.anchor is not None:
        anchors[event.anchor] = found
    return found


def _keys(events: Any, anchors: dict[str, Lines]) -> Lines:
    found: dict[str, tuple[int, Any]] = {}
    for event in events:
        if type(event) is yaml.MappingEndEvent:
            break
        _inside(event, events, anchors)
        inside = _inside(next(events), events, anchors)
        if type(event) is yaml.ScalarEvent:
            found.setdefault(event.value, (_line(event), inside))
    return found


def _items(events: Any, anchors: dict[str, Lines]) -> Lines:
    found: list[tuple[int, Any]] = []
    for event in events:
        if type(event) is yaml.SequenceEndEvent:
            break
        found.append((_line(event), _inside(event, events, anchors)))
    return found


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1
