"""The lines and tables of a command as an HTML page in the style of the dashboard, which loads nothing."""

from __future__ import annotations

import html
import importlib.resources
import os
import pathlib
import tempfile
import time
from collections.abc import Iterable

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.output import Part, TextTable

_STYLE = (
    "table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; "
    "padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def build_page(title: str, parts: Iterable[Part], seconds: int | None, now: float) -> str:
    """Return a page. With `seconds`, it reloads itself."""
    style = importlib.resources.files("pilot.debug.dashboard").joinpath("static/page.css").read_text(encoding="utf-8")
    refresh = f'<meta http-equiv="refresh" content="{seconds}">\n' if seconds else ""
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n{refresh}'
        f"<title>{html.escape(title)}</title>\n<style>{style}{_STYLE}</style>\n"
        f'<header><h1>{html.escape(title)}</h1><span class="soft">{written}</span></header>\n<main>\n'
        + "\n".join(map(_part, parts))
        + "\n</main>\n</html>\n"
    )


def write_page(path: str, page: str) -> None:
    """Replace a file as a whole, so that a browser never reads a part. Raise CommandError if it cannot be written."""
    target = pathlib.Path(path)
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
            file.write(page)
        pathlib.Path(file.name).chmod(0o600)
        os.replace(file.name, target)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def _part(part: Part) -> str:
    if not isinstance(part, TextTable):
        return f"<p>{html.escape(str(part))}</p>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in part.head)
    rows = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in part.rows)
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>"
