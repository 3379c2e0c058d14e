"""How commands print: for people, in colour where there is a terminal and as plain text where there is none; as JSON or YAML for programs."""

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
# How cells look on a terminal that say how something is
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
    """Rows below a head of as many columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]


class CommandResult(NamedTuple):
    """What a command found. `value` is what programs get, and `parts`, which may be a generator, what people see: lines and tables."""

    value: Any
    parts: Iterable[str | TextTable]


def show(answer: CommandResult, form: str) -> None:
    """Prints an answer in one of FORMATS."""
    if form == "json":
        write(as_json(answer.value))
    elif form == "yaml":
        write(yaml.dump(answer.value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=2**20).rstrip("\n"))
    else:
        say(answer.parts)


def say(parts: Iterable[str | TextTable]) -> None:
    """Prints lines and tables."""
    if not sys.stdout.isatty():
        write("\n".join(part if isinstance(part, str) else table(*part) for part in parts))
        return
    console = Console()
    for part in parts:
        console.print(render(part), soft_wrap=isinstance(part, str))


def watch(parts: Callable[[], Iterable[str | TextTable]], seconds: float) -> None:
    """Draws what `parts` gives again and again until it is interrupted; without a terminal it is printed each time, below a line of dashes."""
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
    """Returns a line or a table for a terminal."""
    if isinstance(part, str):
        return Text(part)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for name in part.head:
        drawn.add_column(Text(name), overflow="fold")
    for row in part.rows:
        cells = [one_line(str(cell)) for cell in row]
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    return drawn


def write(text: str) -> None:
    """Prints text to standard output; characters that its encoding does not have as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns rows in columns as wide as their widest cell, without blanks at line ends. A cell stays on its line, whatever is in it."""
    cells = [tuple(head), *(tuple(one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def kind_of(o: dict[str, Any]) -> str:
    """Returns the group and the kind of an object as the pages show it; "" where it says none."""
    return "/".join(part for part in (o.get("group"), o.get("kind")) if part)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False)
