"""Durations in Go's notation, which Istio's configuration and settings use."""

from __future__ import annotations

import re

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SMALL = (("ms", 1_000_000), ("us", 1_000), ("ns", 1))
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([-+]?)((?:{_PART.pattern})+|0)", re.ASCII)
_LIMIT = 2**63
_MAX_LENGTH = 128
"""The maximum number of characters in a duration. It is twice the length of a duration that has all units and nine
decimals."""


class Duration(int):
    """A length of time in nanoseconds."""

    __slots__ = ()

    @classmethod
    def of(cls, seconds: float) -> Duration:
        """Return the duration for a number of seconds."""
        return cls(round(seconds * 1_000_000_000))

    @property
    def seconds(self) -> float:
        return self / 1_000_000_000

    def __str__(self) -> str:
        """Return the duration in protobuf's JSON notation, such as "1.5s"."""
        whole, part = divmod(abs(self), 1_000_000_000)
        text = f"{whole}.{part:09d}".rstrip("0").rstrip(".")
        return f"{'-' if self < 0 else ''}{text}s"

    def __repr__(self) -> str:
        return f"Duration({int(self)})"


def parse_duration(text: str) -> Duration:
    """Parse a duration such as "1.5s", "1h30m", "-1s" or "0". Raise ValueError if the string is invalid.

    https://pkg.go.dev/time#ParseDuration
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"invalid duration: longer than {_MAX_LENGTH} characters")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ValueError(f"invalid duration {text!r}")
    total = sum(_nanoseconds(number, _UNITS[unit]) for number, unit in _PART.findall(whole[2]))
    if total >= _LIMIT:
        raise ValueError(f"invalid duration {text!r}: longer than 292 years")
    return Duration(-total if whole[1] == "-" else total)


def format_duration(duration: Duration) -> str:
    """Format a duration as a string that `parse_duration` accepts, such as "1h30m", "45s", "100ms" or "1.5s"."""
    rest = abs(duration)
    if rest < 1_000_000_000:
        parts = [next((f"{rest // unit}{name}" for name, unit in _SMALL if rest % unit == 0))] if rest else ["0s"]
    else:
        hours, rest = divmod(rest, _UNITS["h"])
        minutes, rest = divmod(rest, _UNITS["m"])
        parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", str(Duration(rest)) if rest else ""]
    return ("-" if duration < 0 else "") + "".join(parts)


def _nanoseconds(number: str, unit: int) -> int:
    whole, _, part = number.partition(".")
    return int(whole or "0") * unit + (int(part) * unit // 10 ** len(part) if part else 0)
