"""Sprig's numeric functions. https://masterminds.github.io/sprig/math.html"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from gotemplate.constants import parse_number
from gotemplate.function import Function, takes
from gotemplate.printing import to_text
from gotemplate.values import Int64

_LARGEST = 2**63


def to_int64(value: Any) -> Int64:
    """Convert a value to an int64. Floats are truncated, and strings are parsed. For any other value, return 0."""
    if isinstance(value, str):
        return Int64(_read(value))
    if isinstance(value, float):
        return Int64(int(value)) if -_LARGEST <= value < _LARGEST else Int64(-_LARGEST)
    return Int64(value) if isinstance(value, int) else Int64(0)


def _read(text: str) -> int:
    """Parse an integer. A fraction that consists of zeros is ignored. Returns 0 if the text is malformed."""
    try:
        number = parse_number(re.sub(r"\.0+$", "", text))
    except ValueError:
        return 0
    return number if isinstance(number, int) else 0


def to_float(value: Any) -> float:
    """Convert a value to a float64. Returns 0 if the value is not a number."""
    if isinstance(value, str):
        try:
            return float(value) if value.strip() == value else 0.0
        except ValueError:
            return 0.0
    return float(value) if isinstance(value, int | float) else 0.0


def wrapped(number: int) -> Int64:
    """Return a number as an int64. Numbers that exceed 64 bits wrap around."""
    return Int64((number + _LARGEST) % (2 * _LARGEST) - _LARGEST)


def divide(dividend: Any, divisor: Any) -> Int64:
    """Return the quotient, truncated towards zero."""
    return wrapped(int(Fraction(to_int64(dividend), _not_zero(to_int64(divisor)))))


def remainder(dividend: Any, divisor: Any) -> Int64:
    """Return the remainder, which has the sign of the dividend."""
    first, second = to_int64(dividend), _not_zero(to_int64(divisor))
    return Int64(first - second * int(Fraction(first, second)))


def _not_zero(number: Int64) -> Int64:
    if not number:
        raise ValueError("runtime error: integer divide by zero")
    return number


def round_to(value: Any, places: int, *threshold: float) -> float:
    """Round a number to decimal places. A remaining fraction is rounded up if it is at least the threshold.

    The threshold defaults to 0.5.
    """
    power = 10.0**places
    digit = power * to_float(value)
    fraction, whole = math.modf(digit)
    up = fraction >= (threshold[0] if threshold else 0.5)
    return (math.ceil(digit) if up else math.floor(digit)) / power if whole or digit else 0.0


def _exactly(step: Callable[[Fraction, Fraction], Fraction], *values: Any) -> float:
    """Combine values from left to right with exact decimal arithmetic."""
    numbers = [Fraction(repr(to_float(v))) for v in values]
    result = numbers[0]
    for number in numbers[1:]:
        result = step(result, number)
    return float(result)


def _quotient(first: Fraction, second: Fraction) -> Fraction:
    if not second:
        raise ValueError("decimal division by 0")
    return Fraction(round(first / second * 10**16), 10**16)


def _octal(value: Any) -> Int64:
    """Parse an octal number. Returns 0 if it is malformed."""
    text = to_text(value)
    return Int64(int(text, 8)) if re.fullmatch(r"[+-]?[0-7]+", text) else Int64(0)


def _atoi(text: str) -> int:
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else 0


def _random(least: int, end: int) -> int:
    if least >= end:
        raise ValueError("invalid argument to Intn")
    return random.randrange(least, end)


def _product(*values: Any) -> Int64:
    return wrapped(math.prod(map(to_int64, values)))


def _largest(*values: Any) -> Int64:
    return max(map(to_int64, values))


def _smallest(*values: Any) -> Int64:
    return min(map(to_int64, values))


NUMBERS: dict[str, Function] = {
    "int": takes("any", lambda value: int(to_int64(value))),
    "int64": takes("any", to_int64),
    "float64": takes("any", to_float),
    "atoi": takes("string", _atoi),
    "toDecimal": takes("any", _octal),
    "add": takes("...any", lambda *values: wrapped(sum(map(to_int64, values)))),
    "add1": takes("any", lambda value: wrapped(to_int64(value) + 1)),
    "sub": takes("any any", lambda a, b: wrapped(to_int64(a) - to_int64(b))),
    "mul": takes("any ...any", _product),
    "div": takes("any any", divide),
    "mod": takes("any any", remainder),
    "max": takes("any ...any", _largest),
    "biggest": takes("any ...any", _largest),
    "min": takes("any ...any", _smallest),
    "addf": takes("...any", lambda *values: _exactly(lambda a, b: a + b, 0.0, *values)),
    "add1f": takes("any", lambda value: _exactly(lambda a, b: a + b, value, 1.0)),
    "subf": takes("any ...any", lambda *values: _exactly(lambda a, b: a - b, *values)),
    "mulf": takes("any ...any", lambda *values: _exactly(lambda a, b: a * b, *values)),
    "divf": takes("any ...any", lambda *values: _exactly(_quotient, *values)),
    "maxf": takes("any ...any", lambda *values: max(map(to_float, values))),
    "minf": takes("any ...any", lambda *values: min(map(to_float, values))),
    "floor": takes("any", lambda value: float(math.floor(to_float(value)))),
    "ceil": takes("any", lambda value: float(math.ceil(to_float(value)))),
    "round": takes("any int ...float", round_to),
    "randInt": takes("int int", _random),
}
