"""Formats floating-point numbers as Go's strconv does."""

from __future__ import annotations

import math


def shortest(value: float, verb: str = "g", threshold: int = 6) -> str:
    """Format a number with the fewest digits that identify it.

    The verb e always uses scientific notation, and f never does. The verb g uses it if the exponent is less than -4 or
    at least `threshold`.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value == math.inf else "-Inf"
    sign, digits, exponent = _decimal(value)
    if verb == "e" or (verb == "g" and not -4 <= exponent - 1 < threshold):
        return sign + _scientific(digits, exponent)
    if exponent <= 0:
        return f"{sign}0.{'0' * -exponent}{digits}" if digits != "0" else f"{sign}0"
    if len(digits) <= exponent:
        return sign + digits + "0" * (exponent - len(digits))
    return f"{sign}{digits[:exponent]}.{digits[exponent:]}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Return the sign, the digits after the decimal point of 0.DIGITS, and the power of ten."""
    text = repr(value)
    sign = "-" if text.startswith("-") else ""
    mantissa, _, power = text.removeprefix("-").partition("e")
    whole, _, part = mantissa.partition(".")
    part = "" if part == "0" else part
    digits = (whole + part).lstrip("0")
    if not digits:
        return sign, "0", 1
    exponent = int(power or 0) + (len(whole) if whole.strip("0") else len(digits) - len(part))
    return sign, digits.rstrip("0") or "0", exponent


def _scientific(digits: str, exponent: int) -> str:
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{tail}e{exponent - 1:+03d}"


def with_precision(value: float, verb: str, precision: int, keep_zeros: bool = False) -> str:
    """Format a number with a number of digits.

    For the verbs e and f, `precision` is the number of digits after the decimal point. For g, it is the number of
    significant digits.
    """
    if math.isnan(value) or math.isinf(value):
        return shortest(value)
    if verb in "eE":
        mantissa, _, power = f"{value:.{precision}e}".partition("e")
        return f"{mantissa}e{power}"
    if verb in "fF":
        return f"{value:.{precision}f}"
    return f"{value:{'#' if keep_zeros else ''}.{precision or 1}g}"
