"""Parses the constants in templates: strings, characters and numbers."""

from __future__ import annotations

import math
import re

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.?))", re.DOTALL
)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_INTEGER = re.compile(r"0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|[1-9](?:_?[0-9])*|0")
_OLD_OCTAL = re.compile(r"0(?:_?[0-7])+")
_LARGEST = 2**63


def parse_literal(kind: str, text: str) -> object:
    """Return the value of a constant token. Raises ValueError if it is malformed."""
    if kind in ("string", "raw"):
        return unquote(text)
    if kind == "char":
        character = unquote(text)
        if len(character) != 1:
            raise ValueError(f"malformed character constant: {text}")
        return ord(character)
    return parse_number(text)


def unquote(text: str) -> str:
    """Return the value of a quoted string. Raw strings have no escapes. Raises ValueError if an escape is invalid."""
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    if "\\" not in text:
        return text[1:-1]
    parts: list[bytes] = []
    end = 0
    inner = text[1:-1]
    for match in _ESCAPE.finditer(inner):
        parts.append(inner[end : match.start()].encode())
        parts.append(_escaped(match, text))
        end = match.end()
    parts.append(inner[end:].encode())
    return b"".join(parts).decode("utf-8", "replace")


def _escaped(match: re.Match[str], text: str) -> bytes:
    letter, byte, short, long, octal, _ = match.groups()
    if letter in _NAMED or letter == text[0]:
        return (_NAMED.get(letter) or letter).encode()
    try:
        if byte or octal:
            return bytes((int(byte, 16) if byte else int(octal, 8),))
        return chr(int(short or long or "", 16)).encode()
    except ValueError:  # also for a code point out of range
        raise ValueError("invalid syntax") from None


def parse_number(text: str) -> int | float:
    """Parse a number in Go's syntax. Raises ValueError if it is malformed."""
    bare = text.lstrip("+-")
    octal = _OLD_OCTAL.fullmatch(bare) is not None
    if octal or _INTEGER.fullmatch(bare):
        number = int(text, 8 if octal else 0)
        if -_LARGEST <= number < _LARGEST:
            return number
        raise ValueError(f'integer overflow: "{text}"')
    try:
        value = float.fromhex(text) if bare[:2] in ("0x", "0X") else float(text)
    except (ValueError, OverflowError):
        raise ValueError(f'illegal number syntax: "{text}"') from None
    if math.isinf(value):
        raise ValueError(f'illegal number syntax: "{text}"')
    if bare.replace("_", "").isdecimal():
        raise ValueError(f'integer overflow: "{text}"')
    return value
