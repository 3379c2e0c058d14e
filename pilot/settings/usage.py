"""What `pilot-discovery discovery --help` prints: the flags, by section."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from pilot.lib.duration import Duration
from pilot.settings import Settings
from pilot.settings.declaration import DeclaredSetting, declared
from pilot.settings.parse import show

HEAD = """\
pilot-discovery discovery: serve configuration to proxies until SIGTERM

  pilot-discovery discovery --configDir=FOLDER [FLAGS]
"""
TAIL = """
A flag wins over its environment variable. Further settings have a variable alone: pilot-discovery collateral lists all of them.
"""


def usage() -> str:
    """Returns the whole help."""
    return HEAD + flag_sections(Settings()) + TAIL


def flag_sections(defaults: Any) -> str:
    """Returns what --help says of the flags that a dataclass of settings declares, by section."""
    with_flags = (s for s in declared(defaults) if s.flag)
    return "".join(
        f"\n{title}\n" + "".join(map(_describe, found)) for title, found in groupby(with_flags, key=lambda s: s.title)
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
    """Returns what stands for the value of a flag; "" for switches."""
    if isinstance(default, bool):
        return ""
    if isinstance(default, Duration):
        return "DURATION"
    if isinstance(default, tuple):
        return "TEXT,TEXT"
    return "NUMBER" if isinstance(default, int | float) else "TEXT"
