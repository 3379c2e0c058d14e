"""Resource quantities in Kubernetes' canonical form.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

_QUANTITY = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64  # characters; arithmetic with thousands of digits would take seconds
_LARGEST_EXPONENT = 64  # Kubernetes' quantities range from 1e-9 to 2**63
_BINARY = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@functools.lru_cache(4096)
def canonical(text: str) -> str:
    """Return the canonical form of a quantity, such as 2 for 2000m and 1Gi for 1024Mi. Raise ValueError if the quantity
    is malformed."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise ValueError(f"the quantity is longer than {_LONGEST} characters")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    sign, digits, exponent, suffix = match.groups()
    if exponent and abs(int(exponent[1:])) > _LARGEST_EXPONENT:
        raise ValueError(f"the exponent of the quantity is not between -{_LARGEST_EXPONENT} and {_LARGEST_EXPONENT}")
    number = Fraction(digits if not digits.endswith(".") else digits[:-1])
    sign = sign if number else ""
    if exponent:
        return sign.strip("+") + _scientific(number * Fraction(10) ** int(exponent[1:]))
    if suffix and suffix.endswith("i"):
        number = number * 2 ** _BINARY[suffix]
        binary = (
            _whole(number, {name: Fraction(2) ** power for name, power in _BINARY.items()})
            if number >= 1 or not number
            else None
        )
        return sign.strip("+") + (binary or _decimal(number))
    return sign.strip("+") + _decimal(number * Fraction(10) ** _DECIMAL[suffix or ""])


def _decimal(number: Fraction) -> str:
    """Format a number with a decimal suffix, rounded up to the next billionth."""
    number = Fraction(-(-number * 10**9 // 1), 10**9)
    return _whole(number, {name: Fraction(10) ** power for name, power in _DECIMAL.items()}) or "0"


def _whole(number: Fraction, units: dict[str, Fraction]) -> str | None:
    """Format a number in the largest unit that divides it, or return None if no unit does."""
    if not number:
        return "0"
    for name, unit in sorted(units.items(), key=lambda item: item[1], reverse=True):
        if (number / unit).denominator == 1:
            return f"{number // unit}{name}"
    return None


def _scientific(number: Fraction) -> str:
    """Format a number in scientific notation, with an exponent divisible by three."""
    for power in range(18, -10, -3):
        if number and (number / Fraction(10) ** power).denominator == 1:
            return f"{number // Fraction(10) ** power}e{power}" if power else str(number)
    return "0"
