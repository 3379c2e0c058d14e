"""Plain data as JSON, a piece at a time: one call for all of a large page would hold the interpreter, and so everybody, for as long as it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.lib.text import one_line

LEVELS = 4
"""Levels of lists and objects that are taken apart; what is below them is encoded in one go."""
INDENT = 4
_ESCAPES = tuple((character.encode(), f"\\u{ord(character):04x}".encode()) for character in "<>&\u2028\u2029")
PART = 1 << 18
"""Bytes of a part at least: many small ones cost more to write than to make."""


class LazyFields(NamedTuple):
    """An object whose fields are made when they are written."""

    items: Iterator[tuple[str, Any]]


def parts(value: Any, pretty: bool) -> Iterator[bytes]:
    """Yields compact JSON, or JSON that is indented by four, in parts of `PART` bytes and the rest. Lists may be iterators: what they yield is
    written at once, and need not all be there together."""
    made: list[bytes] = []
    size = 0
    for piece in _pieces(value, LEVELS, 0 if pretty else -1):
        made.append(piece)
        size += len(piece)
        if size >= PART:
            yield _escaped(b"".join(made))
            made, size = [], 0
    if made:
        yield _escaped(b"".join(made))


def _escaped(encoded: bytes) -> bytes:
    """Returns JSON without the characters that Go's encoder escapes, so that no page can be read as HTML; they are in texts alone."""
    for character, escape in _ESCAPES:
        encoded = encoded.replace(character, escape)
    return encoded


def _pieces(value: Any, levels: int, depth: int) -> Iterator[bytes]:
    """Yields the pieces of a value. `depth`: of its indentation, -1 for none."""
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
    """Returns plain data with escapes for what is no text, such as the bytes of a file name that is no UTF-8."""
    if isinstance(value, str):
        return "".join(one_line(c) if 0xD800 <= ord(c) < 0xE000 else c for c in value)
    if isinstance(value, Mapping):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value
