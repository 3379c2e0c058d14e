"""How commands print: tables for people, JSON for programs."""
from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pilot.lib.text import one_line

_GAP = "   "


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns rows in columns as wide as their widest cell, without blanks at line ends. A cell stays on its line, whatever is in it."""
    cells = [tuple(head), *(tuple(one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)


def kind_of(o: dict[str, Any]) -> str:
    """Returns the group and the kind of an object as the pages show it; "" where it says none."""
    return "/".join(part for part in (o.get("group"), o.get("kind")) if part)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the flag -o."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table (default) or json")
