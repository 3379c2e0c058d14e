"""Sprig's functions for semantic versions. https://masterminds.github.io/sprig/semver.html"""

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
    """A semantic version."""

    type_name = "*semver.Version"

    def __init__(
        self, numbers: tuple[int, int, int], prerelease: str = "", build: str = "", original: str = ""
    ) -> None:
        self.numbers, self.prerelease, self.build, self.original = numbers, prerelease, build, original

    def member(self, name: str) -> Any:
        """Return the result of a method without arguments."""
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
        """Return a comparison method."""
        comparisons: dict[str, Callable[[Version], Any]] = {
            "Compare": lambda other: (self > other) - (self < other),
            "LessThan": lambda other: self < other,
            "GreaterThan": lambda other: self > other,
            "Equal": lambda other: self == other,
        }
        return comparisons.get(name)

    def printed(self, verb: str) -> str:
        """Return the version as a string."""
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
    """Parse a version. The minor and patch numbers are optional. Raises ValueError if the version is invalid."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError("Invalid Semantic Version")
    major, minor, patch, prerelease, build = match.groups()
    return Version((int(major), int(minor or 0), int(patch or 0)), prerelease or "", build or "", text)


def satisfies(constraint: str, version: Version) -> bool:
    """Return whether a version satisfies a constraint.

    The alternatives in a constraint are separated by ||. Each alternative is a list of limits. Raises ValueError if the
    constraint is invalid.
    """
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
    numbers = [int(p) for p in parts if p is not None and p.isdecimal()]
    numbers = numbers[: next((i for i, p in enumerate(parts) if p is None or not p.isdecimal()), None)]
    low = Version((*numbers, 0, 0, 0)[:3], prerelease or "")  # type: ignore[arg-type]
    if version.prerelease and not prerelease and sign != "!=":
        return False
    high = _next(numbers, len(numbers) - 1)
    match sign or "":
        case ">":
            return version > low if len(numbers) == 3 else high is not None and version >= high
        case ">=" | "=>":
            return version >= low
        case "<":
            return version < low
        case "<=" | "=<":
            return version <= low if len(numbers) == 3 else high is None or version < high
        case "!=":
            return version != low if len(numbers) == 3 else not _within(version, low, high)
        case "~" | "~>":
            return _within(version, low, _next(numbers, min(len(numbers) - 1, 1)))
        case "^":
            return _within(
                version, low, _next(numbers, next((i for i, n in enumerate(numbers) if n), len(numbers) - 1))
            )
    return version == low if len(numbers) == 3 else _within(version, low, high)


def _within(version: Version, low: Version, high: Version | None) -> bool:
    return version >= low and (high is None or version < high)


def _next(numbers: list[int], place: int) -> Version | None:
    """Return the lowest version whose number at a position is larger, or None if there are no numbers."""
    if not numbers:
        return None
    return Version((*numbers[:place], numbers[place] + 1, 0, 0)[:3])  # type: ignore[arg-type]


SEMVER: dict[str, Function] = {
    "semver": takes("string", parse_version),
    "semverCompare": takes("string string", lambda constraint, version: satisfies(constraint, parse_version(version))),
}
