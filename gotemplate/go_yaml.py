"""Writes YAML as Go does.

Keys are sorted, lists in maps are not indented, and ambiguous strings are quoted.

https://pkg.go.dev/sigs.k8s.io/yaml#Marshal
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gotemplate.floats import shortest
from gotemplate.quoting import quoted
from gotemplate.values import GoStruct

_OTHER = re.compile(
    r"""(?:~|null|Null|NULL|true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|y|Y|n|N
    |[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)
    |[-+]?0[xX][0-9a-fA-F_]+|[-+]?0[bB][01_]+|0o[0-7_]+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
    |[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\s].*)?|)""",
    re.VERBOSE,
)
_INDICATORS = frozenset("!&*|>'\"%@`,[]{}#")


def dump(value: Any) -> str:
    """Return a value as a YAML document that ends with a newline."""
    value = value.plain() if isinstance(value, GoStruct) else value
    if isinstance(value, dict | list) and value:
        return "\n".join(_lines(value, "")) + "\n"
    return _inline(value, "") + "\n"


def _lines(value: Any, pad: str) -> Iterator[str]:
    """Yield the lines of a non-empty map or list."""
    if isinstance(value, dict):
        for key in sorted(value, key=_natural):
            yield from _entry(f"{pad}{scalar(key)}:", value[key], pad)
        return
    for item in value:
        item = item.plain() if isinstance(item, GoStruct) else item
        if isinstance(item, dict | list) and item:
            first, *rest = _lines(item, pad + "  ")
            yield f"{pad}- {first[len(pad) + 2 :]}"
            yield from rest
        else:
            yield f"{pad}- {_inline(item, pad)}"


def _entry(head: str, value: Any, pad: str) -> Iterator[str]:
    value = value.plain() if isinstance(value, GoStruct) else value
    if isinstance(value, dict) and value:
        yield head
        yield from _lines(value, pad + "  ")
    elif isinstance(value, list) and value:
        yield head
        yield from _lines(value, pad)
    else:
        yield f"{head} {_inline(value, pad)}"


def _natural(key: str) -> list[tuple[int, int | str]]:
    """Return the sort key of a map key. Numbers in the map key are compared by their values."""
    parts = re.split(r"(\d+)", str(key))
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def _inline(value: Any, pad: str) -> str:
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    if isinstance(value, str) and "\n" in value and _is_block(value):
        return _block(value, pad + "  ")
    return scalar(value)


def scalar(value: Any) -> str:
    """Return a scalar as YAML. A string is quoted if it would be read as another type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if abs(value) < 2**63 and value == int(value) else shortest(value)
    return _text(str(value))


def _text(text: str) -> str:
    if _OTHER.fullmatch(text):
        return f'"{text}"'
    if not all(c.isprintable() or c == "\n" for c in text) or "\n" in text:
        return quoted(text)
    if _is_plain(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _is_plain(text: str) -> bool:
    if text[0] in _INDICATORS or text[0] == " " or text[-1] == " " or text.startswith(("---", "...")):
        return False
    if text[0] in "-?:" and (len(text) == 1 or text[1] == " "):
        return False
    return ": " not in text and " #" not in text and not text.endswith(":")


def _is_block(text: str) -> bool:
    """Return whether a multi-line string can be written as a literal block."""
    return all(c.isprintable() or c in "\n\t" for c in text) and bool(text.strip("\n"))


def _block(text: str, pad: str) -> str:
    body = text.rstrip("\n")
    trailing = len(text) - len(body)
    mark = "-" if not trailing else "" if trailing == 1 else "+"
    lines = [f"{pad}{line}" if line else "" for line in body.split("\n")] + [""] * (trailing - 1)
    indented = "2" if text.startswith((" ", "\n")) else ""
    return "|" + indented + mark + "\n" + "\n".join(lines)
