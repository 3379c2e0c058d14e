"""Help text of `pilot-discovery discovery`: its flags, grouped by section."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from pilot.lib.duration import Duration
from pilot.settings import Settings
from pilot.settings.declaration import DeclaredSetting, declared
from pilot.settings.parse import show

HEAD = """\
Serve configuration to proxies until SIGTERM.

Usage:
  pilot-discovery discovery [--configDir=DIR] [FLAGS]
"""
TAIL = """
A flag takes precedence over its environment variable. Some settings have only a variable; to list all settings, run
pilot-discovery collateral.
"""


def usage() -> str:
    """Return the whole help text."""
    return HEAD + flag_sections(Settings()) + TAIL


def flag_sections(defaults: Any) -> str:
    """Return the help text for all flags, grouped by section."""
    with_flags = (s for s in declared(defaults) if s.flag)
    return "".join(
        f"\n{title}\n" + "".join(map(_describe, rows)) for title, rows in groupby(with_flags, key=lambda s: s.title)
    )


def _describe(s: DeclaredSetting) -> str:
    names = f"--{s.flag}" + (f", -{s.short}" if s.short else "")
    more = "; ".join(
        text
        for text in (f"default {show(s.default)}" if show(s.default) else "", f"variable {s.env}" if s.env else "")
        if text
    )
    return (
        f"  {names} {'TEXT' if s.repeated else _placeholder(s.default)}".rstrip()
        + f"\n        {s.about}"
        + (f" ({more})" if more else "")
        + "\n"
    )


def _placeholder(default: Any) -> str:
    """Return the placeholder for a flag's value, or "" if the flag takes no value."""
    if isinstance(default, bool):
        return ""
    if isinstance(default, Duration):
        return "DURATION"
    if isinstance(default, tuple):
        return "TEXT,TEXT"
    return "NUMBER" if isinstance(default, int | float) else "TEXT"
