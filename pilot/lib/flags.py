"""Command-line flags and environment values in the syntax of Go's flag packages.

`--name=value`, `--name value`, `-n value`; a boolean flag stands alone or has `=value`. Unknown flags are skipped with the
value that seems to belong to them, as https://pkg.go.dev/github.com/spf13/pflag does with its UnknownFlags option.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class FlagError(ValueError):
    """A command line or value that cannot be understood; the text is for the user."""


def parse_bool(text: str) -> bool:
    """Returns a boolean as Go's strconv.ParseBool takes it."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise FlagError(f"{text!r} is not a boolean: use true or false")


def parse_int(text: str) -> int:
    """Returns a decimal integer, without the blanks and underscores that int() takes."""
    if not text.removeprefix("-").removeprefix("+").isascii() or not text.removeprefix("-").removeprefix("+").isdigit():
        raise FlagError(f"{text!r} is not an integer")
    return int(text)


def parse_float(text: str) -> float:
    """Returns a finite decimal number."""
    try:
        value = float(text)
    except ValueError:
        raise FlagError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise FlagError(f"{text!r} is not a finite number")
    return value


class Scanned(NamedTuple):
    """The values of the known flags by name, in order; the names of the unknown ones; the positional arguments."""

    values: dict[str, list[str]]
    unknown: list[str]
    positional: list[str]


def scan(argv: Sequence[str], known: Collection[str], switches: Collection[str], short: Mapping[str, str]) -> Scanned:
    """Takes a command line apart. `switches`: the known flags without a separate value; `short`: letter → name."""
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
        if name not in known:
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
    """Returns a flag's full name, and its value where it is in the same word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    name = short.get(word[1], word[1])
    rest = word[2:].removeprefix("=")
    return name, rest or None
