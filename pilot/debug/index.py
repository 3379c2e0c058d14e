"""The page that lists the pages, for people."""
from __future__ import annotations

import datetime
import html
import importlib.resources
import string
import time
import urllib.parse
from collections.abc import Iterable, Mapping

from pilot.debug.page import Page
from pilot.debug.sources import Connection, Sources

_TEMPLATE = string.Template(importlib.resources.files("pilot.debug").joinpath("index.html").read_text(encoding="utf-8"))
_SHOWN_PROXIES = 50
_PROXY_PAGES = {"configuration": "config_dump", "endpoints": "edsz", "scope": "sidecarz", "watches": "adsz"}


def render_index(sections: Mapping[str, Iterable[Page]], sources: Sources | None) -> str:
    """HTML. `sources`: None for a reader who may not see what is connected and configured."""
    summary = "" if sources is None else _facts(sources) + _proxies(sources.fleet.connections())
    listed = "".join(f"<h2>{html.escape(title)}</h2>\n{_table(pages)}" for title, pages in sections.items())
    return _TEMPLATE.substitute(title="pilot-discovery", summary=summary, sections=listed)


def _facts(sources: Sources) -> str:
    problems = len(list(sources.problems()))
    facts = [
        ("version", sources.build.version, ""),
        ("proxies connected", len(sources.fleet.connections()), ""),
        ("services", len(sources.db.services) + len(sources.db.service_entries), ""),
        ("virtual services", len(sources.db.virtual_services), ""),
        ("problems", problems, "bad" if problems else ""),
    ]
    items = "".join(f'<li class="{kind}"><b>{html.escape(str(value))}</b><span>{name}</span></li>' for name, value, kind in facts)
    return f'<ul class="facts">{items}</ul>\n'


def _proxies(connections: Iterable[Connection]) -> str:
    shown = sorted(connections, key=lambda connection: connection.id)
    if not shown:
        return ""
    rows = "".join(map(_proxy, shown[:_SHOWN_PROXIES]))
    rest = f"<p>The first {_SHOWN_PROXIES} of {len(shown)}.</p>" if len(shown) > _SHOWN_PROXIES else ""
    return f'<h2>Proxies</h2>\n<div class="box"><table><tr><th>proxy</th><th>since</th><th>show</th></tr>{rows}</table></div>{rest}\n'


def _proxy(connection: Connection) -> str:
    query = urllib.parse.urlencode({"proxyID": connection.id, "pretty": ""})
    links = "".join(f'<a href="/debug/{page}?{html.escape(query)}">{name}</a>' for name, page in _PROXY_PAGES.items())
    since = datetime.timedelta(seconds=int(max(0.0, time.time() - connection.connected_at)))
    name = f"{html.escape(connection.id)} <p>{connection.proxy.type} {html.escape(connection.proxy.version)}</p>"
    return f'<tr><td class="path">{name}</td><td>{since}</td><td class="links">{links}</td></tr>\n'


def _table(pages: Iterable[Page]) -> str:
    return f'<div class="box"><table>{"".join(map(_row, pages))}</table></div>\n'


def _row(page: Page) -> str:
    examples = "".join(f'<a class="path more" href="{_href(page.path, query)}">?{html.escape(query)}</a>' for query in page.examples)
    return f'<tr><td><a class="path" href="{_href(page.path, "")}">{page.path}</a>{examples}</td><td>{html.escape(page.about)}</td></tr>\n'


def _href(path: str, query: str) -> str:
    return html.escape(f"{path}?{query}" if query else path)
