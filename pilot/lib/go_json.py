"""Writes JSON as Go's standard library does, byte for byte: programs that read our proxies' configuration may compare it as text."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

_ESCAPED = re.compile("[<>&\u2028\u2029]")
_FIXED_BELOW, _FIXED_FROM = 1e21, 1e-6


def encode(value: Any) -> str:
    """Returns a value of mappings, lists, texts, numbers, booleans and None, without spaces and with its keys sorted. All numbers are doubles, as in
    a google.protobuf.Struct."""
    match value:
        case dict():
            return "{" + ",".join(f"{_text(key)}:{encode(item)}" for key, item in sorted(value.items())) + "}"
        case list() | tuple():
            return "[" + ",".join(map(encode, value)) + "]"
        case str():
            return _text(value)
        case bool() | None:
            return json.dumps(value)
        case int() | float():
            return _number(float(value))
    raise TypeError(f"{type(value).__name__} is not of JSON")


def _text(value: str) -> str:
    """Returns a text; what could end a script element of HTML is escaped."""
    quoted = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _number(value: float) -> str:
    """Returns the shortest text that is read as the same number, with an exponent only where it is very large or very small."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not of JSON")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    if _FIXED_FROM <= abs(value) < _FIXED_BELOW:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
