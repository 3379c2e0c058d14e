"""Output of commands: tables and lines for people, in colour on a terminal, or JSON and YAML for programs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import yaml
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pilot.lib.text import one_line

FORMATS = ("table", "json", "yaml")
_GAP = "   "
_WIDTH = 120
"""Number of columns of tables and texts that are not printed on a terminal."""
_NARROWEST, _NARROWEST_CELL = 20, 8
"""Minimum numbers of columns of cells that are continued in further rows, and of cells that are shortened."""
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
SEVERITY_STYLES = {"info": "cyan", "warning": "yellow", "error": "bold red"}
# Styles of status cells on a terminal
_STYLES = SEVERITY_STYLES | {
    "SYNCED": "green",
    "HEALTHY": "green",
    "ALLOWED": "green",
    "ok": "green",
    "STALE": "yellow",
    "NOT SENT": "yellow",
    "DEGRADED": "yellow",
    "ERROR": "bold red",
    "UNHEALTHY": "red",
    "DENIED": "bold red",
}


class TextTable(NamedTuple):
    """A table. Each row has as many cells as the head, or one cell, which spans all columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]


Part = str | Text | TextTable
"""A line, which may have styles, or a table."""


class CommandResult(NamedTuple):
    """The result of a command. `value` is printed as JSON or YAML. `parts` are the lines and tables for people.

    `status` is the exit status.
    """

    value: Any
    parts: Iterable[Part]
    status: int = 0


def fit(part: TextTable, columns: Iterable[int]) -> TextTable:
    """Return a table that is not wider than the terminal, as far as possible.

    The cells of some columns are shortened, those of the first column first. The others stay whole, so that names can
    be copied. Without a terminal, nothing is shortened.
    """
    if not sys.stdout.isatty():
        return part
    limits = _widths([tuple(map(str, row)) for row in (part.head, *part.rows)])
    excess = sum(limits) + len(_GAP) * (len(limits) - 1) - _columns()
    for column in columns:
        cut = max(0, min(excess, limits[column] - _NARROWEST_CELL))
        limits[column], excess = limits[column] - cut, excess - cut
    rows = [
        [_shorten(str(cell), limit) for cell, limit in zip(row, limits, strict=True)] if len(row) > 1 else row
        for row in part.rows
    ]
    return part._replace(rows=rows)


def shorten(text: str) -> str:
    """Return a line that is not wider than the terminal. Without a terminal, it stays whole."""
    return _shorten(text, _columns()) if sys.stdout.isatty() else text


def wrap(part: TextTable, column: int) -> TextTable:
    """Return a table that is not wider than the terminal, or than 120 columns without one, as far as possible.

    The cells of a column continue in further rows. Words, such as host names, stay whole, so that they can be copied.
    """
    widths = _widths([tuple(map(str, row)) for row in (part.head, *part.rows)])
    left = max(_NARROWEST, _columns() - sum(widths) + widths[column] - len(_GAP) * (len(widths) - 1))
    rows: list[Sequence[object]] = []
    wrapper = textwrap.TextWrapper(left, break_long_words=False, break_on_hyphens=False)
    for row in part.rows:
        first, *more = wrapper.wrap(one_line(str(row[column]))) or [""]
        rows.append([first if position == column else cell for position, cell in enumerate(row)])
        rows += [[text if position == column else "" for position in range(len(row))] for text in more]
    return part._replace(rows=rows)


def fold(text: str, indent: str, further: str) -> str:
    """Return a text in lines that are as wide as the terminal, or 120 columns without one, and are indented."""
    wrapper = textwrap.TextWrapper(
        _columns(),
        initial_indent=indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.fill(one_line(text))


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH


def _shorten(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def show(result: CommandResult, form: str) -> None:
    """Print a result in one of FORMATS."""
    if form == "json":
        write(as_json(result.value))
    elif form == "yaml":
        write(yaml.dump(result.value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=2**20).rstrip("\n"))
    else:
        say(result.parts)


def say(parts: Iterable[Part]) -> None:
    """Print lines and tables. On a terminal, they have colours, unless the environment variable NO_COLOR is set."""
    if not sys.stdout.isatty():
        write("\n".join(table(*part) if isinstance(part, TextTable) else str(part) for part in parts))
        return
    console = Console(highlight=False)
    for part in parts:  # the terminal wraps lines that are too long, so that names can be copied
        console.print(render(part), soft_wrap=True)


def watch(parts: Callable[[], Iterable[Part]], seconds: float) -> None:
    """Redraw the lines and tables that `parts` returns every `seconds` until interrupted.

    Without a terminal, print them repeatedly, each time followed by dashes.
    """
    if not sys.stdout.isatty():
        while True:
            say(parts())
            write("---")
            time.sleep(seconds)
    console = Console(highlight=False)
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(Group(*(render(part, cut=True) for part in _fit(list(parts()), console.height))), refresh=True)
            time.sleep(seconds)


def _fit(parts: list[Part], height: int) -> Iterator[Part]:
    """Yield the parts with as many rows of each table as a screen has space for."""
    space = height - sum(2 if isinstance(part, TextTable) else 1 for part in parts)
    for part in parts:
        if isinstance(part, TextTable) and len(part.rows) > max(space, 0):
            shown = max(space - 1, 1)
            yield part._replace(rows=part.rows[:shown])
            yield f"… and {len(part.rows) - shown} more"
        else:
            yield part


def render(part: Part, cut: bool = False) -> RenderableType:
    """Return a line or a table in a form that can be rendered on a terminal. With `cut`, long lines are cut."""
    lines = list(_styled_rows(part)) if isinstance(part, TextTable) else [Text(part) if isinstance(part, str) else part]
    for line in lines:
        line.no_wrap, line.overflow = (True, "ellipsis") if cut else (None, None)
    return Group(*lines)


def _styled_rows(part: TextTable) -> Iterator[Text]:
    """Yield the head and the rows of a table in aligned columns without trailing spaces."""
    rows = [tuple(part.head), *(tuple(one_line(str(cell)) for cell in row) for row in part.rows)]
    widths = _widths(rows)
    for number, row in enumerate(rows):
        line = Text()
        for position, (cell, width) in enumerate(zip(row, widths, strict=False)):
            line.append(cell, _STYLES.get(cell, "") if number else "bold")
            if any(row[position + 1 :]):
                line.append(" " * (width - cell_len(cell)) + _GAP)
        yield line


def write(text: str) -> None:
    """Print text to standard output. Escape characters that its encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows in aligned columns without trailing spaces. Line breaks in cells are replaced."""
    cells = [tuple(head), *(tuple(one_line(str(cell)) for cell in row) for row in rows)]
    widths = _widths(cells)
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in cells
    )


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column. Cells that span all columns do not count."""
    aligned = [row for row in rows if len(row) > 1 or len(rows[0]) == 1]
    return [max(map(cell_len, column)) for column in zip(*aligned, strict=True)]


def kind_of(o: dict[str, Any]) -> str:
    """Return the kind of an object from a debug page, with its group if Istio has a kind of the same name."""
    kind: str = o.get("kind", "")
    return f"{o.get('group')}/{kind}" if kind == "Gateway" and o.get("group") == "gateway.networking.k8s.io" else kind


def name_of(o: dict[str, Any]) -> str:
    """Return the "namespace/name" of an object from a debug page, or its name if it has no namespace."""
    return "/".join(part for part in (o.get("namespace"), o.get("name")) if part)


def place_of(o: dict[str, Any]) -> str:
    """Return the "file:line" of an object from a debug page, or "" if it is not from a file.

    Files below the working directory have relative names.
    """
    file: str = o.get("file", "")
    here = os.path.join(os.getcwd(), "")
    return file.removeprefix(here) + (f":{o['line']}" if file and o.get("line") else "")


def as_json(value: Any) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False)
