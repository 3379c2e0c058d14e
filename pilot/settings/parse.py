"""Flags and environment → settings.

A flag wins over its variable, a variable over the default. The type of the default says how the text is read: Go's syntax for
booleans, integers and durations; tuples are the parts between commas, or the uses of a flag that is repeated.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pilot.lib import flags
from pilot.lib.duration import Duration, format_duration, parse_duration
from pilot.settings import Settings
from pilot.settings.ambient import ignored
from pilot.settings.declaration import DeclaredSetting, declared
from pilot.settings.without_effect import without_effect

Section = TypeVar("Section")
Values = dict[tuple[str, ...], Any]


class Loaded(NamedTuple, Generic[Section]):
    """Settings as read, the value of every flag by name for the log, and what was not used: sentences for the log."""

    settings: Section
    flags: dict[str, str]
    warnings: list[str]


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Loaded[Settings]:
    """Returns the control plane's settings, as `load_sections` does."""
    loaded = load_sections(Settings(), argv, environ)
    loaded.warnings.extend(ignored(loaded.settings.mesh.ambient, environ))
    loaded.warnings.extend(without_effect(environ))
    return loaded


def load_sections(defaults: Section, argv: Sequence[str], environ: Mapping[str, str]) -> Loaded[Section]:
    """Returns the settings that `defaults` declares. A bad flag raises `FlagError`; a bad variable is left at its default with a warning,
    as in Istio."""
    known = list(declared(defaults))
    given, warnings = _scan(argv, known)
    values: Values = {d.path: d.default for d in known}
    for d in known:
        if d.env and (environ.get(d.env) or (d.may_be_empty and d.env in environ)):
            try:
                values[d.path] = read(environ[d.env], d.default)
            except ValueError as error:
                warnings.append(f"environment variable {d.env} is ignored: {error}")
        if texts := given.get(d.flag):
            try:
                values[d.path] = _read_all(texts, d)
            except ValueError as error:
                raise flags.FlagError(f"invalid argument for --{d.flag}: {error}") from None
    shown = {d.flag: show(values[d.path]) for d in known if d.flag}
    return Loaded(_fill(defaults, values), dict(sorted(shown.items())), warnings)


def _scan(argv: Sequence[str], known: Sequence[DeclaredSetting]) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the texts of each given flag, and a warning for each flag that is not known."""
    names = {d.flag for d in known if d.flag}
    switches = {d.flag for d in known if isinstance(d.default, bool)}
    given, unknown, positional = flags.scan(argv, names, switches, {d.short: d.flag for d in known if d.short})
    if positional:
        raise flags.FlagError(f"unexpected argument {positional[0]!r}")
    return given, [f"flag --{name} is not known and has no effect{_suggest(name, names)}" for name in unknown]


def _suggest(name: str, known: Iterable[str]) -> str:
    """Returns a question that names the known flag that is spelt most like an unknown one; "" where none is."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean --{close[0]}?" if close else ""


def _fill(empty: Section, values: Values, path: tuple[str, ...] = ()) -> Section:
    """Returns a copy of a section with the values at their paths, in the sections in it too."""
    changes = {
        f.name: _fill(f.default, values, (*path, f.name))
        if dataclasses.is_dataclass(f.default)
        else values[*path, f.name]
        for f in dataclasses.fields(empty)  # type: ignore[arg-type]
    }
    return dataclasses.replace(empty, **changes)  # type: ignore[type-var]


def _read_all(texts: Sequence[str], d: DeclaredSetting) -> Any:
    """Returns the value of a flag that was given once or more. The last use counts, but tuples gather all of them."""
    if d.repeated:
        return tuple(filter(None, texts))
    return read(",".join(texts) if isinstance(d.default, tuple) else texts[-1], d.default)


def read(text: str, default: Any) -> Any:
    """Returns the value that a text says, of the type of `default`. ValueError where the text is no such value."""
    if isinstance(default, bool):
        return flags.parse_bool(text)
    if isinstance(default, Duration):
        return parse_duration(text)
    if isinstance(default, int):
        return flags.parse_int(text)
    if isinstance(default, float):
        return flags.parse_float(text)
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def show(value: Any) -> str:
    """Returns the text that `read` would take for a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
