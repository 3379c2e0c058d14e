"""Encodes JSON exactly as Go's standard library does, because some programs compare configuration as text."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

_ESCAPED = re.compile("[<>&\u2028\u2029]")
_FIXED_BELOW, _FIXED_FROM = 1e21, 1e-6


def encode(value: Any) -> str:
    """Return a plain value as compact JSON with sorted keys. All numbers are doubles, as in google.protobuf.Struct."""
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
    raise TypeError(f"{type(value).__name__} has no JSON representation")


def _text(value: str) -> str:
    """Return a string in quotes. Characters that could end an HTML script element are escaped."""
    quoted = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _number(value: float) -> str:
    """Return the shortest decimal form that parses to the same number.

    Only very large or small numbers have an exponent.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON representation")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    if _FIXED_FROM <= abs(value) < _FIXED_BELOW:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
