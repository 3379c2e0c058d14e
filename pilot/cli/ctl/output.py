"""Output of commands: tables and lines for people, in colour on a terminal, or JSON and YAML for programs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from pilot.lib.text import one_line

FORMATS = ("table", "json", "yaml")
_GAP = "   "
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Styles of status cells on a terminal
_STYLES = {
    "SYNCED": "green",
    "HEALTHY": "green",
    "ALLOWED": "green",
    "ok": "green",
    "STALE": "yellow",
    "NOT SENT": "yellow",
    "DEGRADED": "yellow",
    "warning": "yellow",
    "ERROR": "bold red",
    "UNHEALTHY": "red",
    "DENIED": "bold red",
    "error": "bold red",
}


class TextTable(NamedTuple):
    """A table. Each row has as many cells as the head."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]


class CommandResult(NamedTuple):
    """The result of a command. `value` is printed as JSON or YAML. `parts` are the lines and tables for people."""

    value: Any
    parts: Iterable[str | TextTable]


def show(result: CommandResult, form: str) -> None:
    """Print a result in one of FORMATS."""
    if form == "json":
        write(as_json(result.value))
    elif form == "yaml":
        write(yaml.dump(result.value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=2**20).rstrip("\n"))
    else:
        say(result.parts)


def say(parts: Iterable[str | TextTable]) -> None:
    """Print lines and tables."""
    if not sys.stdout.isatty():
        write("\n".join(part if isinstance(part, str) else table(*part) for part in parts))
        return
    console = Console()
    for part in parts:
        console.print(render(part), soft_wrap=isinstance(part, str))


def watch(parts: Callable[[], Iterable[str | TextTable]], seconds: float) -> None:
    """Redraw the lines and tables that `parts` returns every `seconds` until interrupted.

    Without a terminal, print them repeatedly, each time followed by dashes.
    """
    if not sys.stdout.isatty():
        while True:
            say(parts())
            write("---")
            time.sleep(seconds)
    with contextlib.suppress(KeyboardInterrupt), Live(console=Console(), auto_refresh=False, screen=True) as live:
        while True:
            live.update(Group(*map(render, parts())), refresh=True)
            time.sleep(seconds)


def render(part: str | TextTable) -> RenderableType:
    """Return a line or a table in a form that can be rendered on a terminal."""
    if isinstance(part, str):
        return Text(part)
    rich_table = RichTable(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for name in part.head:
        rich_table.add_column(Text(name), overflow="fold")
    for row in part.rows:
        cells = [one_line(str(cell)) for cell in row]
        rich_table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    return rich_table


def write(text: str) -> None:
    """Print text to standard output. Escape characters that its encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows in aligned columns without trailing spaces. Line breaks in cells are replaced."""
    cells = [tuple(head), *(tuple(one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def kind_of(o: dict[str, Any]) -> str:
    """Return "group/kind" of an object from a debug page, or "" if it has neither."""
    return "/".join(part for part in (o.get("group"), o.get("kind")) if part)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False)
