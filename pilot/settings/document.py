"""Generator of docs/settings.md, the reference of all settings, grouped by section."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from pilot.settings import Settings, without_effect
from pilot.settings.declaration import DeclaredSetting, declared
from pilot.settings.parse import show

HEAD = """\
# Settings

Flags and environment variables of `pilot-discovery discovery`. A flag takes precedence over its variable, and a
variable over the default. Unknown flags are logged with a warning and otherwise ignored.

This page is generated from `pilot/settings` by `python -m pilot.settings`. Do not edit it.
"""


def document() -> str:
    """Return the settings reference in Markdown."""
    return HEAD + without_effect.paragraph() + sections(Settings())


def sections(defaults: Any) -> str:
    """Return a heading and a table for each section."""
    return "".join(_section(title, rows) for title, rows in groupby(declared(defaults), key=lambda d: d.title))


def _section(title: str, settings: Iterable[DeclaredSetting]) -> str:
    """Return the heading and the table of one section."""
    return f"\n## {title}\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n" + "".join(
        _row(s) for s in settings
    )


def _row(s: DeclaredSetting) -> str:
    flag = f"`--{s.flag}`" + (f", `-{s.short}`" if s.short else "") if s.flag else ""
    default = show(s.default)
    return f"| {flag} | {f'`{s.env}`' if s.env else ''} | {f'`{default}`' if default else ''} | {s.about} |\n"


def main(argv: Sequence[str]) -> int:
    """Print the document or, with `--check FILE`, compare the file with it. Return the exit status."""
    if not argv:
        print(document(), end="")
        return 0
    _, path = argv
    with open(path, encoding="utf-8") as file:
        if file.read() == document():
            return 0
    print(f"{path} is out of date; run: python -m pilot.settings > {path}", file=sys.stderr)
    return 1
