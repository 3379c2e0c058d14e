"""The constants of actions: text and characters in quotes, numbers."""
from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.?))", re.DOTALL)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_literal(kind: str, text: str) -> object:
    """Returns the value of a constant token; ValueError where its text is none."""
    if kind in ("string", "raw"):
        return unquote(text)
    if kind == "char":
        found = unquote(text)
        if len(found) != 1:
            raise ValueError(f"malformed character constant: {text}")
        return ord(found)
    return parse_number(text)


def unquote(text: str) -> str:
    """Returns the text between quotes, escapes resolved; ValueError where one is wrong. Back quotes hold no escapes."""
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    if "\\" not in text:
        return text[1:-1]
    parts: list[bytes] = []
    end = 0
    inner = text[1:-1]
    for found in _ESCAPE.finditer(inner):
        parts.append(inner[end : found.start()].encode())
        parts.append(_escaped(found, text))
        end = found.end()
    parts.append(inner[end:].encode())
    return b"".join(parts).decode("utf-8", "replace")


def _escaped(found: re.Match[str], text: str) -> bytes:
    named, byte, short, long, octal, _ = found.groups()
    if named:
        return _NAMED.get(named, named).encode()
    if byte or octal:
        value = int(byte, 16) if byte else int(octal, 8)
        if value < 256:
            return bytes((value,))
    elif short or long:
        return chr(int(short or long, 16)).encode()
    raise ValueError(f"invalid syntax: {text}")


def parse_number(text: str) -> int | float:
    """Returns the number that a text says in Go's syntax; ValueError where it says none."""
    digits = text.replace("_", "")
    bare = digits.lstrip("+-")
    try:
        if re.fullmatch(r"0[0-7]+", bare):
            return int(digits, 8)
        if "p" in bare.lower() and bare[:2] in ("0x", "0X"):
            return float.fromhex(digits)
        if re.fullmatch(r"[0-9]+|0[xX].+|0[bB].+|0[oO].+", bare):
            return int(digits, 10 if bare.isdecimal() else 0)
        value = float(digits)
    except ValueError:
        raise ValueError(f'bad number syntax: "{text}"') from None
    return value
