"""Quotes strings as Go's strconv does, and formats values in Go syntax."""

from __future__ import annotations

from typing import Any

from gotemplate.floats import shortest
from gotemplate.values import type_name

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}


def quoted(text: str, ascii_only: bool = False) -> str:
    """Return a string in double quotes, with non-printable characters escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(c, '"', ascii_only) for c in text) + '"'


def quoted_rune(code: int, ascii_only: bool = False) -> str:
    """Return a character in single quotes, escaped if necessary."""
    return f"'{_escaped(chr(code), chr(39), ascii_only)}'"


def _escaped(character: str, quote: str, ascii_only: bool) -> str:
    if character == quote:
        return "\\" + quote
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if (character.isprintable() and not character.isspace()) or character == " ":
        if code < 0x80 or not ascii_only:
            return character
    elif code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def go_syntax(value: Any) -> str:
    """Return a value as %#v prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, list):
        return f"{type_name(value)}{{{', '.join(map(_element, value))}}}"
    if isinstance(value, dict):
        return f"{type_name(value)}{{{', '.join(f'{quoted(k)}:{_element(value[k])}' for k in sorted(value))}}}"
    return str(value)


def _element(value: Any) -> str:
    return "interface {}(nil)" if value is None else go_syntax(value)
