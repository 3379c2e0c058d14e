"""Parses configuration files into documents of plain data with line numbers.

YAML is parsed as in Kubernetes: YAML 1.1, except that timestamps and numbers with colons stay strings. Keys become
strings as in JSON. Documents are built from libyaml's events. This takes half the time of `yaml.CSafeLoader`, and the
line of each value is known.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from pilot.ingest.files.chunks import Chunk, split
from pilot.ingest.files.outline import Inside, JsonListOutline, JsonOutline, Outline, Place
from pilot.ingest.files.scalars import key_text, resolve

MAX_ALIASED_VALUES = 100_000
"""Maximum number of values that aliases add to a document. Each is copied when the document is decoded."""
MAX_ALIASED_CHARACTERS = 4 << 20
"""Maximum number of characters that aliases add to a document. Each is copied when the document is encoded."""
MAX_TAG_DIRECTIVES = 64
"""Maximum number of %TAG directives in a file. libyaml compares each with all others."""

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG_DIRECTIVES = tuple("%TAG".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))
_CORE = "tag:yaml.org,2002:"
_LARGE = 1 << 20  # bytes
_MERGE = object()
_TAB_INDENT = re.compile(rb"^ *\t", re.MULTILINE)
_LONGEST_WORD = 64  # characters
_resolve_word = functools.lru_cache(4096)(resolve)  # files repeat their words, and equal words share memory


class Document(NamedTuple):
    """One document of a file.

    `line` is the line of its first content, counted from 1. `repeated` contains the keys that occur more than once in a
    mapping, and their lines. The last occurrence wins.
    """

    plain: Any
    line: int
    repeated: tuple[tuple[str, int], ...] = ()
    outline: Outline = Outline()

    def line_of(self, path: str) -> int:
        """Return the line of a field path in the file, counted from 1."""
        return self.outline.line(self.line, path)


class SyntaxFault(ValueError):
    """Invalid YAML or JSON in a file. `line` is counted from 1, and is 0 if it is unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def read_documents(data: bytes, path: str, allow_aliases: bool = True) -> list[Document]:
    """Return the non-empty documents of a file. Raise SyntaxFault if one of them is invalid."""
    if path.endswith(".json"):
        return read_json(data)
    return [document for chunk in split(data) for document in read_chunk(chunk, allow_aliases)]


def read_document(data: bytes, path: str) -> Document:
    """Return the only document of a file, which is null if the file is empty.

    Raise SyntaxFault if it is invalid, repeats a key, or is not the only one.
    """
    documents = read_documents(data, path)
    if len(documents) > 1:
        raise SyntaxFault("expected a single document", documents[1].line)
    document = (documents or [Document(None, 1)])[0]
    for key, line in document.repeated:
        raise SyntaxFault(f"the key {key!r} occurs more than once", line)
    return document


def read_chunk(chunk: Chunk, allow_aliases: bool = True) -> list[Document]:
    """Return the non-empty documents in a chunk of a YAML file. Raise SyntaxFault if one of them is invalid."""
    data, lines = chunk
    if sum(map(data.count, _TAG_DIRECTIVES)) > MAX_TAG_DIRECTIVES:
        raise SyntaxFault(f"more than {MAX_TAG_DIRECTIVES} %TAG directives")
    try:
        builder = _Builder(data, lines, allow_aliases)
        return [document for document in builder.documents() if document.plain is not None]
    except SyntaxFault as fault:
        raise _with_hint(fault, data) from fault
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        message = " ".join(filter(None, (fault.context, fault.problem)))
        raise _with_hint(SyntaxFault(message, lines + mark.line + 1 if mark else 0), data) from fault
    except yaml.reader.ReaderError as fault:
        message = "not a text in UTF-8" if "UTF-8" in str(fault) else str(fault).partition("\n")[0]
        raise SyntaxFault(message, lines + data.count(b"\n", 0, fault.position) + 1) from fault
    except (yaml.YAMLError, UnicodeError) as fault:
        raise SyntaxFault(str(fault).partition("\n")[0]) from fault
    except RecursionError as fault:
        raise SyntaxFault("the document is nested too deeply") from fault


def _with_hint(fault: SyntaxFault, data: bytes) -> SyntaxFault:
    """Return the fault with its likely cause, if it is a common one."""
    message = str(fault)
    has_tab = "tab character" in message or ("cannot start any token" in message and _TAB_INDENT.search(data))
    if b"{{" in data:
        hint = "this looks like a Helm template: render it first, for example with `helm template`"
    elif has_tab:
        hint = "YAML does not permit tabs for indentation: replace them by spaces"
    elif "block mapping" in message or "block collection" in message or "mapping values are not allowed" in message:
        hint = "check the indentation of this line and of the lines above"
    elif "flow mapping" in message or "flow sequence" in message:
        hint = "close every { and [, and quote texts that contain { } [ ] or ,"
    elif "scanning an alias" in message:
        hint = "quote texts that begin with *"
    elif "quoted scalar" in message:
        hint = "a quote is not closed"
    else:
        return fault
    return SyntaxFault(f"{message}; {hint}", fault.line)


def read_json(data: bytes) -> list[Document]:
    """Return the document in a JSON text, or an empty list if the text is blank.

    Raise SyntaxFault if the text is invalid.
    """
    if not data.strip():
        return []
    try:
        return [_read_large_list(data) or Document(msgspec.json.decode(data), 1, outline=JsonOutline(data))]
    except (msgspec.DecodeError, UnicodeError) as fault:
        place = re.search(r"byte (\d+)", str(fault))
        start = int(place[1]) if place else len(data)
        message = "JSON does not permit comments" if data[start : start + 2] in (b"//", b"/*") else str(fault)
        raise SyntaxFault(message, data.count(b"\n", 0, start) + 1 if place else 0) from fault
    except RecursionError as fault:
        raise SyntaxFault("the document is nested too deeply") from fault


def _read_large_list(data: bytes) -> Document | None:
    """Return a large list of objects. It is decoded item by item, because one long call would block other threads.

    Return None if the text is not a large list, or if the whole text must be decoded to locate an error.
    """
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


def _resolve_plain(text: str) -> Any:
    return _resolve_word(text) if len(text) <= _LONGEST_WORD else resolve(text)


class _Size(NamedTuple):
    """The size of a value: the number of values in it, and the number of characters in its scalars."""

    values: int = 0
    characters: int = 0


class _Builder:
    """Builds the documents of a stream from its events in one pass."""

    def __init__(self, data: bytes, lines: int, allow_aliases: bool) -> None:
        self._lines, self._allow_aliases = lines, allow_aliases
        self._next: Any = _PARSER(data).get_event  # yaml.parse does the same with a Python frame for each event
        self._anchors: dict[str, tuple[Any, Inside, _Size]] = {}
        self._repeated: list[tuple[str, int]] = []
        self._values = self._characters = 0
        self._aliased = _Size()

    def documents(self) -> Iterator[Document]:
        while (event := self._next()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors, self._repeated, self._aliased = {}, [], _Size()
                first = self._next()
                plain, inside = self._node(first)
                yield Document(plain, self._line(first), tuple(self._repeated), Outline(inside))

    def _line(self, event: Any) -> int:
        """Return the line of an event in the file, counted from 1."""
        line: int = event.start_mark.line
        return self._lines + line + 1

    def _node(self, event: Any) -> tuple[Any, Inside]:
        """Return the value that starts with an event, and the places inside it."""
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        self._values += 1
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
            self._characters += len(event.value)
            if event.anchor is not None:
                self._anchors[event.anchor] = value, None, _Size(1, len(event.value))
            return value, None
        values, characters = self._values, self._characters
        container, inside = self._mapping() if kind is yaml.MappingStartEvent else self._sequence()
        if event.anchor is not None:
            size = _Size(self._values - values + 1, self._characters - characters)
            self._anchors[event.anchor] = container, inside, size
        return container, inside

    def _alias(self, event: Any) -> tuple[Any, Inside]:
        if event.anchor not in self._anchors:
            raise SyntaxFault(f"unknown alias *{event.anchor}; quote texts that begin with *", self._line(event))
        if not self._allow_aliases:
            raise SyntaxFault("aliases are not supported in this text", self._line(event))
        value, inside, size = self._anchors[event.anchor]
        self._values += size.values
        self._characters += size.characters
        self._aliased = _Size(self._aliased.values + size.values, self._aliased.characters + size.characters)
        if self._aliased.values > MAX_ALIASED_VALUES:
            raise SyntaxFault(f"aliases add more than {MAX_ALIASED_VALUES} values", self._line(event))
        if self._aliased.characters > MAX_ALIASED_CHARACTERS:
            raise SyntaxFault(f"aliases add more than {MAX_ALIASED_CHARACTERS} characters", self._line(event))
        return value, inside

    def _sequence(self) -> tuple[list[Any], list[Place]]:
        items: list[Any] = []
        places: list[Place] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            value, inside = self._node(event)
            items.append(value)
            places.append(self._place(event, inside))
        return items, places

    def _place(self, event: Any, inside: Inside) -> Place:
        return self._line(event) if inside is None else (self._line(event), inside)

    def _mapping(self) -> tuple[dict[str, Any], dict[str, Place]]:
        mapping: dict[str, Any] = {}
        places: dict[str, Place] = {}
        merged: list[dict[str, Any]] = []
        while type(event := self._next()) is not yaml.MappingEndEvent:
            key = self._key(event)
            value, inside = self._node(self._next())
            if key is _MERGE:
                merged += self._merged(value, event)
                continue
            if key in mapping:
                self._repeated.append((key, self._line(event)))
            mapping[key] = value
            places[key] = self._place(event, inside)
        for other in merged:
            for name, value in other.items():
                mapping.setdefault(name, value)
        return mapping, places

    def _key(self, event: Any) -> Any:
        if type(event) is yaml.ScalarEvent and event.implicit[0] and event.anchor is None:
            self._values += 1
            self._characters += len(event.value)
            return _MERGE if event.value == "<<" else key_text(_resolve_plain(event.value))
        key, _ = self._node(event)
        if isinstance(key, dict | list):
            raise SyntaxFault("a key must be a scalar", self._line(event))
        return key_text(key)

    def _merged(self, value: Any, event: Any) -> list[dict[str, Any]]:
        mappings = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in mappings):
            raise SyntaxFault("only mappings can be merged with <<", self._line(event))
        return mappings

    def _scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if tag is None:
            return _resolve_plain(text) if event.implicit[0] else text
        if tag in ("!", _CORE + "str"):
            return text
        if tag in (_CORE + "null", _CORE + "bool", _CORE + "int", _CORE + "float"):
            return resolve(text)
        raise SyntaxFault(f"unknown tag {tag}", self._line(event))
