"""Sentences of the dashboard: texts with links and times, which a browser or the index of debug pages renders."""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Plain = dict[str, Any]
FindingLevel = Literal["bad", "warn", "ok", "note", "busy"]
LEVELS: tuple[FindingLevel, ...] = ("bad", "warn", "ok", "note", "busy")
"""All levels, worst first."""


class ViewLink(NamedTuple):
    """A text that links to a view of the dashboard, such as `#/problems`."""

    text: str
    href: str


class Moment(NamedTuple):
    """A Unix time. `form` says whether it is shown as "since TIME (DURATION)" or as a duration."""

    time: float
    form: Literal["since", "for", "in"]


Part = str | ViewLink | Moment


class MeshFinding(NamedTuple):
    """A sentence about the mesh. `impact` is the number of proxies, objects or services that are affected. `fails` says
    whether requests fail."""

    level: FindingLevel
    parts: tuple[Part, ...]
    impact: int = 0
    fails: bool = False

    def plain(self) -> Plain:
        """Return the finding as a JSON object."""
        parts = [part if isinstance(part, str) else part._asdict() for part in self.parts]
        return {"level": self.level, "parts": parts}


def number_of(count: int, one: str, many: str = "") -> str:
    """Return a number with a noun."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def view(*parts: str) -> str:
    """Return the address of a view, as the page's script builds it."""
    return "#/" + "/".join(urllib.parse.quote(part or "-", safe="-_.!~*'()") for part in parts)


def object_link(ref: Mapping[str, str], path: str = "") -> ViewLink:
    """Return a link to a field of an object."""
    name = "/".join(filter(None, (ref["namespace"], ref["name"])))
    query = f"?path={urllib.parse.quote(path, safe='')}" if path else ""
    return ViewLink(
        f"{ref['kind']} {name}", view("object", ref["group"], ref["kind"], ref["namespace"], ref["name"]) + query
    )


def proxy_link(row: Plain) -> ViewLink:
    """Return a link to the proxy of a row."""
    name = row["name"] if "." in row["name"] else f"{row['name']}.{row['namespace']}"
    return ViewLink(name, view("proxy", row["id"]))


def duration(seconds: float) -> str:
    """Return a duration in its largest unit."""
    whole = max(0, int(seconds))
    if whole >= 2 * 86400:
        return f"{whole // 86400} days"
    return f"{whole // 3600} h" if whole >= 3600 else f"{whole // 60} min" if whole >= 60 else f"{whole} s"


def moment_text(moment: Moment, now: float) -> str:
    """Return a moment as text at a Unix time. Times of day are in UTC."""
    span = duration(abs(now - moment.time))
    if moment.form != "since":
        return span
    return f"since {datetime.datetime.fromtimestamp(moment.time, datetime.UTC):%H:%M} UTC ({span})"
