"""The text of a file → its documents as plain data, with the lines that they start at.

YAML 1.1 as Kubernetes reads it: timestamps stay text, keys become text as in JSON, a number with colons is no number. What is written simply is
read line by line (`block_reader`), everything else from libyaml's events, which costs half of what yaml.CSafeLoader does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from pilot.ingest.block_reader import BlockReader
from pilot.ingest.block_yaml import NotSimple, Words
from pilot.ingest.chunks import Chunk, split
from pilot.ingest.json_lines import JsonListOutline, JsonOutline
from pilot.ingest.lines import Inside, Outline, Place
from pilot.ingest.scalars import key_text, resolve

MAX_NODES = 1_000_000
"""Values of one document, with what its aliases repeat: more is a mistake, or an attack."""

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_LARGE = 1 << 20  # bytes
_MERGE = object()


class Document(NamedTuple):
    """`line` is that of its first content, from 1; `repeated`: keys that a mapping has twice, with their lines. The last one counts."""

    plain: Any
    line: int
    repeated: tuple[tuple[str, int], ...] = ()
    outline: Outline = Outline()

    def line_of(self, path: str) -> int:
        """Returns the line of a path in the file, from 1."""
        return self.outline.line(self.line, path)


class SyntaxFault(ValueError):
    """The text is not what its suffix says. `line` is from 1, 0 where unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def read_documents(data: bytes, path: str) -> list[Document]:
    """Returns every document that holds anything; SyntaxFault where one of them cannot be parsed."""
    if path.endswith(".json"):
        return read_json(data)
    reader = new_reader()
    return [document for chunk in split(data) for document in read_chunk(chunk, reader)]


def new_reader() -> BlockReader:
    """Returns a reader for one file, or several that may be alike."""
    return BlockReader(new_words())


def new_words() -> Words:
    """Returns what remembers the words of files."""
    return Words(_read_value)


def _read_value(text: str) -> Any:
    """Returns what stands behind a key on its line. Raises NotSimple where that is not a whole value."""
    try:
        found = list(_Builder(text.encode(), 0).documents())
    except (SyntaxFault, yaml.YAMLError, RecursionError) as fault:
        raise NotSimple from fault
    if len(found) != 1 or found[0].repeated:
        raise NotSimple
    return found[0].plain


def read_chunk(chunk: Chunk, reader: BlockReader) -> list[Document]:
    """Returns the documents of a piece of a YAML text that hold anything; SyntaxFault where one of them cannot be parsed."""
    try:
        plain, line, inside = reader.read(chunk.text)
    except NotSimple:
        return parse_chunk(chunk)
    return [Document(plain, chunk.lines + line, outline=Outline(inside, chunk.lines))] if line else []


def parse_chunk(chunk: Chunk) -> list[Document]:
    """Returns what `read_chunk` does, by libyaml."""
    data, lines = chunk
    try:
        return [document for document in _Builder(data, lines).documents() if document.plain is not None]
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        raise SyntaxFault(
            " ".join(filter(None, (fault.context, fault.problem))), lines + mark.line + 1 if mark else 0
        ) from fault
    except yaml.reader.ReaderError as fault:
        raise SyntaxFault(str(fault).partition("\n")[0], lines + data.count(b"\n", 0, fault.position) + 1) from fault
    except (yaml.YAMLError, UnicodeError) as fault:
        raise SyntaxFault(str(fault).partition("\n")[0]) from fault
    except RecursionError as fault:
        raise SyntaxFault("nested too deeply") from fault


def read_json(data: bytes) -> list[Document]:
    """Returns the one document of a JSON text, none where it is blank; SyntaxFault where it cannot be parsed."""
    if not data.strip():
        return []
    try:
        return [_read_large_list(data) or Document(msgspec.json.decode(data), 1, outline=JsonOutline(data))]
    except (msgspec.DecodeError, UnicodeError) as fault:
        place = re.search(r"byte (\d+)", str(fault))
        raise SyntaxFault(str(fault), data.count(b"\n", 0, int(place[1])) + 1 if place else 0) from fault
    except RecursionError as fault:
        raise SyntaxFault("nested too deeply") from fault


def _read_large_list(data: bytes) -> Document | None:
    """Returns a large list of objects, whose items are decoded one by one: one call for all would hold up other threads. None for something
    else, and for what is wrong at a place that only the whole tells."""
    if len(data) <= _LARGE:
        return None
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        items = msgspec.json.decode(fields.pop("items", b"[]"), type=list[msgspec.Raw])
        plain = {
            **{name: msgspec.json.decode(raw) for name, raw in fields.items()},
            "items": [msgspec.json.decode(item) for item in items],
        }
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return Document(plain, 1, outline=JsonListOutline(data, items)) if items else None


class _Builder:
    """One pass over the events of a text."""

    def __init__(self, data: bytes, lines: int) -> None:
        self._lines = lines
        self._events: Iterator[Any] = iter(
            _PARSER(data).get_event, None
        )  # yaml.parse does so too, with a frame of Python for each event
        self._anchors: dict[str, tuple[Any, Inside, int]] = {}
        self._repeated: list[tuple[str, int]] = []
        self._nodes = 0

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors, self._repeated, self._nodes = {}, [], 0
                first = next(self._events)
                plain, inside = self._node(first)
                yield Document(plain, self._line(first), tuple(self._repeated), Outline(inside))

    def _line(self, event: Any) -> int:
        """Returns the line of an event in the file, from 1."""
        line: int = event.start_mark.line
        return self._lines + line + 1

    def _node(self, event: Any) -> tuple[Any, Inside]:
        """Returns the value that begins with an event, and the places inside of it."""
        self._nodes += 1
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value, None, 1
            return value, None
        if kind is yaml.AliasEvent:
            return self._alias(event)
        before = self._nodes
        made, inside = self._mapping() if kind is yaml.MappingStartEvent else self._sequence()
        if event.anchor is not None:
            self._anchors[event.anchor] = made, inside, self._nodes - before + 1
        return made, inside

    def _alias(self, event: Any) -> tuple[Any, Inside]:
        if event.anchor not in self._anchors:
            raise SyntaxFault(f"unknown alias *{event.anchor}", self._line(event))
        value, inside, nodes = self._anchors[event.anchor]
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise SyntaxFault(
                f"more than {MAX_NODES} values, aliases counted as what they stand for", self._line(event)
            )
        return value, inside

    def _sequence(self) -> tuple[list[Any], list[Place]]:
        items: list[Any] = []
        places: list[Place] = []
        for event in self._events:
            if type(event) is yaml.SequenceEndEvent:
                break
            value, inside = self._node(event)
            items.append(value)
            places.append(self._place(event, inside))
        return items, places

    def _place(self, event: Any, inside: Inside) -> Place:
        return self._line(event) if inside is None else (self._line(event), inside)

    def _mapping(self) -> tuple[dict[str, Any], dict[str, Place]]:
        made: dict[str, Any] = {}
        places: dict[str, Place] = {}
        merged: list[dict[str, Any]] = []
        for event in self._events:
            if type(event) is yaml.MappingEndEvent:
                break
            key = self._key(event)
            value, inside = self._node(next(self._events))
            if key is _MERGE:
                merged += self._merged(value, event)
                continue
            if key in made:
                self._repeated.append((key, self._line(event)))
            made[key] = value
            places[key] = self._place(event, inside)
        for other in merged:
            for name, value in other.items():
                made.setdefault(name, value)
        return made, places

    def _key(self, event: Any) -> Any:
        if type(event) is yaml.ScalarEvent and event.value == "<<" and event.implicit[0]:
            return _MERGE
        key, _ = self._node(event)
        if isinstance(key, dict | list):
            raise SyntaxFault("a key must be a single value", self._line(event))
        return key_text(key)

    def _merged(self, value: Any, event: Any) -> list[dict[str, Any]]:
        found = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in found):
            raise SyntaxFault("only mappings can be merged with <<", self._line(event))
        return found

    def _scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if tag is None:
            return resolve(text) if event.implicit[0] else text
        if tag in ("!", _CORE + "str"):
            return text
        if tag in (_CORE + "null", _CORE + "bool", _CORE + "int", _CORE + "float"):
            return resolve(text)
        raise SyntaxFault(f"unknown tag {tag}", self._line(event))
