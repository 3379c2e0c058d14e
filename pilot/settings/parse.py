"""Parses flags and environment variables into settings.

A flag takes precedence over its variable, and a variable over the default. The type of the default determines how a
string is parsed. Booleans, integers and durations have Go's syntax. A tuple contains the comma-separated parts of the
string, or one value per use of a repeated flag.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from pilot.lib import flags
from pilot.lib.duration import Duration, format_duration, parse_duration
from pilot.settings import Settings
from pilot.settings.ambient import ignored
from pilot.settings.declaration import DeclaredSetting, declared
from pilot.settings.process import debounce_warnings
from pilot.settings.without_effect import unknown, without_effect

Section = TypeVar("Section")
Values = dict[tuple[str, ...], Any]


class Loaded(NamedTuple, Generic[Section]):
    """The parsed settings, the value of each flag keyed by its name, and warnings to log."""

    settings: Section
    flags: dict[str, str]
    warnings: list[str]


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Loaded[Settings]:
    """Return the settings of the control plane. Raise FlagError if a flag is invalid."""
    loaded = load_sections(Settings(), argv, environ)
    loaded.warnings.extend(ignored(loaded.settings.mesh.ambient, environ))
    loaded.warnings.extend(debounce_warnings(loaded.settings.ingest))
    loaded.warnings.extend(without_effect(environ))
    loaded.warnings.extend(unknown(environ, (d.env for d in declared(Settings()))))
    return loaded


def load_sections(
    defaults: Section,
    argv: Sequence[str],
    environ: Mapping[str, str],
    strict: bool = False,
    without_effect: Mapping[str, str] = MappingProxyType({}),
) -> Loaded[Section]:
    """Return the settings that `defaults` declares. Raise FlagError if a flag is invalid, or misspelt and `strict`.

    `without_effect` maps further flags to the reasons why they have no effect, which the warnings about them state.
    If a variable is invalid, the default applies and a warning is returned, as in Istio.
    """
    settings = list(declared(defaults))
    flag_texts, warnings = _scan(argv, settings, without_effect)
    if strict and (misspelt := [text for text in warnings if text.endswith("?")]):
        raise flags.FlagError(misspelt[0])
    values: Values = {d.path: d.default for d in settings}
    for d in settings:
        if d.env and (environ.get(d.env) or (d.may_be_empty and d.env in environ)):
            try:
                values[d.path] = _read_checked(environ[d.env], d)
            except ValueError as error:
                warnings.append(f"environment variable {d.env} is ignored: {error}")
        if texts := flag_texts.get(d.flag):
            try:
                values[d.path] = _read_all(texts, d)
            except ValueError as error:
                raise flags.FlagError(f"invalid argument for --{d.flag}: {error}") from None
    flag_values = {d.flag: show(values[d.path]) for d in settings if d.flag}
    return Loaded(_fill(defaults, values), dict(sorted(flag_values.items())), warnings)


def _scan(
    argv: Sequence[str], settings: Sequence[DeclaredSetting], without_effect: Mapping[str, str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of each flag on the command line, and a warning for each other flag."""
    names = {d.flag for d in settings if d.flag}
    switches = {d.flag for d in settings if isinstance(d.default, bool)}
    short_names = {d.short: d.flag for d in settings if d.short}
    flag_texts, unknown, positional = flags.scan(argv, names, switches, short_names)
    if positional:
        raise flags.FlagError(
            f"unexpected argument {positional[0]!r}{_explain_argument(positional[0], argv, switches)}"
        )
    variables = {_plain_name(d.env): d.env for d in settings if d.env}
    return flag_texts, [
        f"flag --{name} has no effect: {without_effect[name]}"
        if name in without_effect
        else f"unknown flag --{name} has no effect{_suggest(name, names, variables)}"
        for name in unknown
    ]


def _explain_argument(word: str, argv: Sequence[str], switches: Collection[str]) -> str:
    """Return the fix for an argument that is not a flag, if it is the value of a Boolean flag, or else ""."""
    flag = argv[argv.index(word) - 1].removeprefix("--") if argv.index(word) else ""
    return f"; the value of --{flag} follows =, as in --{flag}=true" if flag and flag in switches else ""


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _suggest(name: str, flag_names: Iterable[str], variables: Mapping[str, str]) -> str:
    """Return a question that suggests the most similar flag, the variable of the name, or "" if there is neither."""
    if variable := variables.get(_plain_name(name)):
        return f"; set the environment variable {variable}"
    close = difflib.get_close_matches(name, flag_names, n=1, cutoff=0.8)
    return f"; did you mean --{close[0]}?" if close else ""


def _fill(empty: Section, values: Values, path: tuple[str, ...] = ()) -> Section:
    """Return a copy of a section in which each setting has the value at its path."""
    changes = {
        f.name: _fill(f.default, values, (*path, f.name))
        if dataclasses.is_dataclass(f.default)
        else values[*path, f.name]
        for f in dataclasses.fields(empty)  # type: ignore[arg-type]
    }
    return dataclasses.replace(empty, **changes)  # type: ignore[type-var]


def _read_all(texts: Sequence[str], d: DeclaredSetting) -> Any:
    """Return the value of a flag.

    If the flag is used more than once, a tuple collects the values of all uses. For other types, the last use wins.
    """
    if d.repeated:
        return tuple(filter(None, texts))
    return _read_checked(",".join(texts) if isinstance(d.default, tuple) else texts[-1], d)


def _read_checked(text: str, d: DeclaredSetting) -> Any:
    """Return the value that a string has. Raise ValueError if it is invalid, or the setting's check or range excludes
    it."""
    try:
        value = read(text, d.default)
    except ValueError as error:
        if d.maximum is None:
            raise
        raise ValueError(f"{error} between 0 and {d.maximum:g}") from None
    if d.check is not None:
        d.check(value)
    if d.maximum is not None and not 0 <= value <= d.maximum:
        raise ValueError(f"{show(value)} is not between 0 and {d.maximum:g}")
    return value


def read(text: str, default: Any) -> Any:
    """Parse a string as a value of the type of `default`. Raise ValueError if the string is invalid."""
    if isinstance(default, bool):
        return flags.parse_bool(text)
    if isinstance(default, Duration):
        if text.isdecimal() and int(text):
            unit = "ms" if 0 < default < 1_000_000_000 else "s"
            raise ValueError(f"invalid duration {text!r}; did you mean {text}{unit}?")
        return _read_duration(text)
    if isinstance(default, int):
        if size := re.fullmatch(r"(\d{1,9})([KMG])i?B?", text, re.ASCII):
            raise ValueError(f"{text!r} is not an integer; write {int(size[1]) * 1024 ** ('KMG'.index(size[2]) + 1)}")
        return flags.parse_int(text)
    if isinstance(default, float):
        return flags.parse_float(text)
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _read_duration(text: str) -> Duration:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        days = re.fullmatch(r"(\d{1,5})(d|days?)", text, re.ASCII)
        raise ValueError(
            f"{error}: units are h, m, s and ms{f'; write {int(days[1]) * 24}h' if days else ''}"
        ) from None
    if duration < 0:
        raise ValueError(f"{text!r} is negative")
    return duration


def show(value: Any) -> str:
    """Format a value as a string that `read` accepts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
