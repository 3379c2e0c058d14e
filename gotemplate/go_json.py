"""Reads and writes JSON as Go's encoding/json does."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from gotemplate.floats import shortest
from gotemplate.values import GoStruct

_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_quote = json.JSONEncoder(ensure_ascii=False).encode
_LINES = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029"})


def plain(value: Any) -> Any:
    """Return a value with structs converted to maps. Raises ValueError for NaN and infinities."""
    if isinstance(value, GoStruct):
        return plain(value.plain())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {shortest(value)}")
    return value


def dumps(value: Any, indent: int = 0, escape_html: bool = True) -> str:
    """Return a value as JSON. Map keys are sorted, but struct fields are not. If `indent` is set, the JSON has several
    lines."""
    text = _text(value, "\n" if indent else "", " " * indent).translate(_LINES)
    return text.translate(_HTML) if escape_html else text


def _text(value: Any, line: str, pad: str) -> str:
    if isinstance(value, GoStruct):
        plain_value = value.plain()
        return (
            _text(plain_value, line, pad)
            if not isinstance(plain_value, dict)
            else _mapping(plain_value, line, pad, plain_value)
        )
    if isinstance(value, dict):
        return _mapping(value, line, pad, sorted(value))
    if isinstance(value, list):
        return _list(value, line, pad)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        plain(value)
        return shortest(value, "e" if value and not 1e-6 <= abs(value) < 1e21 else "f").replace("e-0", "e-")
    return _quote(str(value))


def _mapping(value: dict[str, Any], line: str, pad: str, keys: Any) -> str:
    inner = line + pad if line else ""
    colon = ": " if line else ":"
    items = [f"{_quote(str(key))}{colon}{_text(value[key], inner, pad)}" for key in keys]
    return f"{{{inner}{f',{inner}'.join(items)}{line}}}" if items else "{}"


def _list(value: list[Any], line: str, pad: str) -> str:
    inner = line + pad if line else ""
    items = [_text(item, inner, pad) for item in value]
    return f"[{inner}{f',{inner}'.join(items)}{line}]" if items else "[]"


def loads(text: str) -> Any:
    """Parse JSON. As in Go, all numbers become floats. Raises ValueError if the JSON is invalid."""
    try:
        return floats(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        raise ValueError(f"invalid JSON: {fault}") from fault


def floats(value: Any) -> Any:
    """Return a value with all integers converted to floats."""
    if isinstance(value, dict):
        return {key: floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
