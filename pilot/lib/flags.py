"""Command-line flags and environment values in the syntax of Go's flag packages.

The forms are `--name=value`, `--name value` and `-n value`. A boolean flag has no value or `=value`. Unknown flags are
skipped together with what looks like their value, as https://pkg.go.dev/github.com/spf13/pflag does with UnknownFlags.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class FlagError(ValueError):
    """An invalid command line or value. The text is for the user."""


def parse_bool(text: str) -> bool:
    """Return a boolean, parsed like Go's strconv.ParseBool."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise FlagError(f"{text!r} is not a boolean: use true or false")


def parse_int(text: str) -> int:
    """Return a decimal integer. Unlike int(), this rejects blanks and underscores."""
    if not text.removeprefix("-").removeprefix("+").isascii() or not text.removeprefix("-").removeprefix("+").isdigit():
        raise FlagError(f"{text!r} is not an integer")
    return int(text)


def parse_float(text: str) -> float:
    """Return a finite decimal number."""
    try:
        value = float(text)
    except ValueError:
        raise FlagError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise FlagError(f"{text!r} is not a finite number")
    return value


class Scanned(NamedTuple):
    """The values of the defined flags by name, in order; the names of the unknown flags; the positional arguments."""

    values: dict[str, list[str]]
    unknown: list[str]
    positional: list[str]


def scan(argv: Sequence[str], names: Collection[str], switches: Collection[str], short: Mapping[str, str]) -> Scanned:
    """Parse a command line.

    `names` are the defined flags, `switches` those of them without a separate value, and `short` maps letters to names.
    Raise FlagError if a value is missing.
    """
    scanned = values, unknown, positional = Scanned({}, [], [])
    rest = list(reversed(argv))
    while rest:
        word = rest.pop()
        if word == "--":
            positional += reversed(rest)
            break
        if len(word) < 2 or word[0] != "-":
            positional.append(word)
            continue
        name, inline = _split(word, short)
        if name not in names:
            unknown.append(name)
            if inline is None and rest and not rest[-1].startswith("-"):
                rest.pop()
            continue
        if inline is None:
            if name in switches:
                inline = "true"
            elif rest:
                inline = rest.pop()
            else:
                raise FlagError(f"flag needs an argument: --{name}")
        values.setdefault(name, []).append(inline)
    return scanned


def _split(word: str, short: Mapping[str, str]) -> tuple[str, str | None]:
    """Return a flag's full name, and its value if it is in the same word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    name = short.get(word[1], word[1])
    rest = word[2:].removeprefix("=")
    return name, rest or None
