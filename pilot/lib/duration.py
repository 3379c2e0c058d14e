"""Durations in Go's syntax: "1h30m", "100ms", "0.5s", "-2us"."""
from __future__ import annotations

import re

UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


class Duration(int):
    """Nanoseconds."""

    __slots__ = ()

    @property
    def seconds(self) -> float:
        return self / 1e9


def parse_duration(text: str) -> Duration:
    """A duration as Go's time.ParseDuration takes it; ValueError where it is none."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    total, position = 0, 0
    for part in _PART.finditer(rest):
        if part.start() != position:
            break
        whole, _, fraction = part[1].partition(".")
        unit = UNITS[part[2]]
        total += int(whole or "0") * unit + (int(fraction or "0") * unit // 10 ** len(fraction) if fraction else 0)
        position = part.end()
    if not rest or position != len(rest) or total >= 2**63:
        raise ValueError(f"{text!r} is not a duration such as 30s or 1h30m")
    return Duration(sign * total)


def format_duration(value: int) -> str:
    """A duration as Go prints it: 1h0m0s, 1.5s, 100ms, 0s."""
    sign, rest = ("-", -value) if value < 0 else ("", int(value))
    if rest == 0:
        return "0s"
    for unit in ("ns", "µs", "ms"):
        if rest < UNITS[unit] * 1000:
            return f"{sign}{_decimal(rest, UNITS[unit])}{unit}"
    hours, rest = divmod(rest, UNITS["h"])
    minutes, rest = divmod(rest, UNITS["m"])
    out = f"{hours}h" if hours else ""
    if out or minutes:
        out += f"{minutes}m"
    return f"{sign}{out}{_decimal(rest, UNITS['s'])}s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1)}".rstrip("0") if rest else str(whole)
