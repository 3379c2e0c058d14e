"""Command-line flags and environment values in the syntax of Go's flag packages.

The forms are `--name=value`, `--name value` and `-n value`. The value of a Boolean flag must follow `=` and may be
omitted. An unknown flag is skipped, and so is the next argument if it looks like a value. This is what
https://pkg.go.dev/github.com/spf13/pflag does with UnknownFlags.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class FlagError(ValueError):
    """An invalid command line or value. Users see the message."""


def parse_bool(text: str) -> bool:
    """Parse a Boolean in the syntax of Go's strconv.ParseBool."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise FlagError(f"{text!r} is not a boolean: use true or false")


def parse_int(text: str) -> int:
    """Parse a decimal integer. Unlike int(), this rejects blanks and underscores."""
    if not text.removeprefix("-").removeprefix("+").isascii() or not text.removeprefix("-").removeprefix("+").isdigit():
        raise FlagError(f"{text!r} is not an integer")
    return int(text)


def parse_float(text: str) -> float:
    """Parse a finite decimal number."""
    try:
        value = float(text)
    except ValueError:
        raise FlagError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise FlagError(f"{text!r} is not a finite number")
    return value


class Scanned(NamedTuple):
    """The values of the known flags keyed by name, the names of unknown flags, and the positional arguments."""

    values: dict[str, list[str]]
    unknown: list[str]
    positional: list[str]


def scan(argv: Sequence[str], names: Collection[str], switches: Collection[str], short: Mapping[str, str]) -> Scanned:
    """Parse a command line. Raise FlagError if a value is missing.

    `names` are the known flags. `switches` are the Boolean flags among them. `short` maps letters to names.
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
    """Return the full name of a flag, and its value if the same argument contains it."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    name = short.get(word[1], word[1])
    rest = word[2:].removeprefix("=")
    return name, rest or None
