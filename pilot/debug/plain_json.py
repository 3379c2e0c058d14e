"""Incremental JSON encoding. Encoding a large page in one call would block the interpreter for too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.lib.text import one_line

LEVELS = 4
"""Number of levels of lists and objects that are encoded item by item. Deeper values are encoded in one call."""
INDENT = 4
_ESCAPES = tuple((character.encode(), f"\\u{ord(character):04x}".encode()) for character in "<>&\u2028\u2029")
PART = 1 << 18
"""Minimum number of bytes in a part, because writing many small parts is expensive."""


class LazyFields(NamedTuple):
    """An object whose fields are evaluated when they are written."""

    items: Iterator[tuple[str, Any]]


def parts(value: Any, pretty: bool) -> Iterator[bytes]:
    """Yield the JSON encoding of a value, compact or indented by four, in parts of at least `PART` bytes.

    Lists may be iterators. Their items are encoded as they are produced.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(value, LEVELS, 0 if pretty else -1):
        pieces.append(piece)
        size += len(piece)
        if size >= PART:
            yield _escaped(b"".join(pieces))
            pieces, size = [], 0
    if pieces:
        yield _escaped(b"".join(pieces))


def _escaped(encoded: bytes) -> bytes:
    """Escape the characters that Go's encoder escapes, so that browsers cannot interpret a page as HTML.

    These characters occur only inside strings.
    """
    for character, escape in _ESCAPES:
        encoded = encoded.replace(character, escape)
    return encoded


def _pieces(value: Any, levels: int, depth: int) -> Iterator[bytes]:
    """Yield the pieces of a value. `depth` is the indentation level, or -1 for compact JSON."""
    is_lazy = isinstance(value, Iterator | LazyFields)
    if not is_lazy and (not levels or not isinstance(value, Mapping | list | tuple) or not value):
        yield _whole(value, depth)
        return
    inner = depth + 1 if depth >= 0 else depth
    between, end = (b"\n" + b" " * (INDENT * inner), b"\n" + b" " * (INDENT * depth)) if depth >= 0 else (b"", b"")
    is_object = isinstance(value, Mapping | LazyFields)
    items: Iterable[Any] = (
        value.items if isinstance(value, LazyFields) else value.items() if isinstance(value, Mapping) else value
    )
    number, below = 0, max(levels - 1, 0)
    yield b"{" if is_object else b"["
    for number, item in enumerate(items, 1):
        yield b"," + between if number > 1 else between
        if is_object:
            yield _whole(str(item[0]), -1) + (b": " if depth >= 0 else b":")
        yield from _pieces(item[1] if is_object else item, below, inner)
    yield (end if number else b"") + (b"}" if is_object else b"]")


def _whole(value: Any, depth: int) -> bytes:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_as_text(msgspec.to_builtins(value)))
    if depth < 0 or not isinstance(value, Mapping | list | tuple):
        return encoded
    return msgspec.json.format(encoded, indent=INDENT).replace(b"\n", b"\n" + b" " * (INDENT * depth))


def _as_text(value: Any) -> Any:
    """Escape lone surrogates, which represent invalid UTF-8 in file names."""
    if isinstance(value, str):
        return "".join(one_line(c) if 0xD800 <= ord(c) < 0xE000 else c for c in value)
    if isinstance(value, Mapping):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value
