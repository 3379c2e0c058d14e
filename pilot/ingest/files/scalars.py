"""Determines the values of plain YAML scalars.

As in Kubernetes, this is YAML 1.1, but timestamps and numbers with colons stay strings.
"""

from __future__ import annotations

import re
from typing import Any

_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL")) | dict.fromkeys(
    (".nan", ".NaN", ".NAN"), float("nan")
)
for _value, _words in ((True, ("yes", "true", "on")), (False, ("no", "false", "off"))):
    _WORDS |= {form: _value for word in _words for form in (word, word.capitalize(), word.upper())}
for _sign, _infinity in (("", float("inf")), ("+", float("inf")), ("-", float("-inf"))):
    _WORDS |= {_sign + form: _infinity for form in (".inf", ".Inf", ".INF")}
_NUMERIC = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_HUGE = 1 << 1024  # beyond floating point; Python does not print integers of thousands of digits


def resolve(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if _INT.fullmatch(text):
        digits = text.replace("_", "")
        sign, bare = (-1, digits[1:]) if digits[0] == "-" else (1, digits.removeprefix("+"))
        try:
            number = sign * (int(bare, 8) if len(bare) > 1 and bare[0] == "0" and bare.isdecimal() else int(bare, 0))
        except ValueError:  # 08, 0x_, and numbers of thousands of digits
            return text
        return number if abs(number) < _HUGE else text
    return float(text.replace("_", "")) if _FLOAT.fullmatch(text) else text


def key_text(value: Any) -> str:
    """Return the JSON key for a scalar."""
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
