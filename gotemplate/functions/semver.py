"""Functions of versions. https://masterminds.github.io/sprig/semver.html"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from gotemplate.function import Function, takes
from gotemplate.values import GoStruct

_TAIL = r"(?:-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?(?:\+([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?"
_VERSION = re.compile(rf"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?{_TAIL}", re.ASCII)
_PART = r"(\d+|[xX*])"
_LIMIT = re.compile(
    rf"\s*(=|==|!=|>|<|>=|=>|<=|=<|~|~>|\^)?\s*v?{_PART}(?:\.{_PART})?(?:\.{_PART})?{_TAIL}\s*", re.ASCII
)
_RANGE = re.compile(r"(\S+)\s+-\s+(\S+)")


@functools.total_ordering
class Version(GoStruct):
    """A version by its three numbers and what is behind them."""

    type_name = "*semver.Version"

    def __init__(
        self, numbers: tuple[int, int, int], prerelease: str = "", build: str = "", original: str = ""
    ) -> None:
        self.numbers, self.prerelease, self.build, self.original = numbers, prerelease, build, original

    def member(self, name: str) -> Any:
        """Returns a part by the name of its method."""
        major, minor, patch = self.numbers
        parts = {
            "Major": major,
            "Minor": minor,
            "Patch": patch,
            "Prerelease": self.prerelease,
            "Metadata": self.build,
            "Original": self.original,
        }
        if name == "String":
            return self.printed("v")
        if name not in parts:
            raise self.no_member(name)
        return parts[name]

    def method(self, name: str) -> Callable[..., Any] | None:
        """Returns a comparison with another version."""
        comparisons: dict[str, Callable[[Version], Any]] = {
            "Compare": lambda other: (self > other) - (self < other),
            "LessThan": lambda other: self < other,
            "GreaterThan": lambda other: self > other,
            "Equal": lambda other: self == other,
        }
        return comparisons.get(name)

    def printed(self, verb: str) -> str:
        """Returns the version as text."""
        text = ".".join(map(str, self.numbers))
        return text + (f"-{self.prerelease}" if self.prerelease else "") + (f"+{self.build}" if self.build else "")

    def _order(self) -> tuple[Any, ...]:
        parts = (
            [(False, int(p)) if p.isdecimal() else (True, p) for p in self.prerelease.split(".")]
            if self.prerelease
            else []
        )
        return self.numbers, not self.prerelease, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._order() == other._order()

    def __lt__(self, other: Version) -> bool:
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash(self.numbers)


def parse_version(text: str) -> Version:
    """Returns the version of a text, of which the last numbers may be missing. ValueError where it is none."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError("Invalid Semantic Version")
    major, minor, patch, prerelease, build = found.groups()
    return Version((int(major), int(minor or 0), int(patch or 0)), prerelease or "", build or "", text)


def satisfies(constraint: str, version: Version) -> bool:
    """Returns whether a version meets a constraint: alternatives between ||, each of limits that must all hold. ValueError where it is none."""
    alternatives = []
    for alternative in constraint.split("||"):
        text = _RANGE.sub(r">=\1,<=\2", alternative)
        limits = [_LIMIT.fullmatch(part) for part in re.split(r"\s*,\s*|(?<=[\dxX*])\s+(?=[=!<>~^\d])", text.strip())]
        if not limits or not all(limits):
            raise ValueError(f"improper constraint: {constraint}")
        alternatives.append([limit for limit in limits if limit])
    return any(all(_holds(limit, version) for limit in limits) for limits in alternatives)


def _holds(limit: re.Match[str], version: Version) -> bool:
    sign, *parts, prerelease, _ = limit.groups()
    known = [int(p) for p in parts if p is not None and p.isdecimal()]
    known = known[: next((i for i, p in enumerate(parts) if p is None or not p.isdecimal()), None)]
    low = Version((*known, 0, 0, 0)[:3], prerelease or "")  # type: ignore[arg-type]
    if version.prerelease and not prerelease and sign != "!=":
        return False
    high = _next(known, len(known) - 1)
    match sign or "":
        case ">":
            return version > low if len(known) == 3 else high is not None and version >= high
        case ">=" | "=>":
            return version >= low
        case "<":
            return version < low
        case "<=" | "=<":
            return version <= low if len(known) == 3 else high is None or version < high
        case "!=":
            return version != low if len(known) == 3 else not _within(version, low, high)
        case "~" | "~>":
            return _within(version, low, _next(known, min(len(known) - 1, 1)))
        case "^":
            return _within(version, low, _next(known, next((i for i, n in enumerate(known) if n), len(known) - 1)))
    return version == low if len(known) == 3 else _within(version, low, high)


def _within(version: Version, low: Version, high: Version | None) -> bool:
    return version >= low and (high is None or version < high)


def _next(known: list[int], place: int) -> Version | None:
    """Returns the first version whose number at a place is larger; None where no number is known."""
    if not known:
        return None
    return Version((*known[:place], known[place] + 1, 0, 0)[:3])  # type: ignore[arg-type]


SEMVER: dict[str, Function] = {
    "semver": takes("string", parse_version),
    "semverCompare": takes("string string", lambda constraint, version: satisfies(constraint, parse_version(version))),
}
