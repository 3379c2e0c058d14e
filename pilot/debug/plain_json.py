"""Plain data as JSON, a piece at a time: one call for all of a large page would hold the interpreter, and so everybody, for as long as it takes."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pilot.lib.text import one_line

LEVELS = 4
"""Levels of lists and objects that are taken apart; what is below them is encoded in one go."""
INDENT = 4


def encode_json(value: Any, pretty: bool) -> bytes:
    """Returns compact JSON, or JSON that is indented by four."""
    return b"".join(_pieces(value, LEVELS, 0 if pretty else -1))


def _pieces(value: Any, levels: int, depth: int) -> Iterator[bytes]:
    """Yields the pieces of a value. `depth`: of its indentation, -1 for none."""
    if not levels or not isinstance(value, Mapping | list | tuple) or not value:
        yield _whole(value, depth)
        return
    inner = depth + 1 if depth >= 0 else depth
    between, end = (b"\n" + b" " * (INDENT * inner), b"\n" + b" " * (INDENT * depth)) if depth >= 0 else (b"", b"")
    is_object = isinstance(value, Mapping)
    yield b"{" if is_object else b"["
    for number, item in enumerate(value.items() if isinstance(value, Mapping) else value):
        yield b"," + between if number else between
        if is_object:
            yield _whole(str(item[0]), -1) + (b": " if depth >= 0 else b":")
        yield from _pieces(item[1] if is_object else item, levels - 1, inner)
    yield end + (b"}" if is_object else b"]")


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
