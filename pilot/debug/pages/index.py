"""The HTML index of debug pages."""

from __future__ import annotations

import datetime
import html
import importlib.resources
import string
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence

from pilot.config.kinds.istio import SERVICE_ENTRY, VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import SERVICE
from pilot.debug.finding_parts import MeshFinding, Part, ViewLink, moment_text
from pilot.debug.page import Page
from pilot.debug.sources import ConnectedProxy, Sources

_TEMPLATE = string.Template(
    importlib.resources.files("pilot.debug.pages").joinpath("index.html").read_text(encoding="utf-8")
)
DASHBOARD = "/debug/dashboard"
_SHOWN_PROXIES = 50
_FORM = "one-proxy"
_PROXY_PAGES = {"configuration": "config_dump", "endpoints": "edsz", "scope": "sidecarz", "watches": "adsz"}


def render_index(
    sections: Mapping[str, Iterable[Page]], sources: Sources | None = None, headline: MeshFinding | None = None
) -> str:
    """Return the index as HTML, which begins with the headline of the dashboard. The caller may not access connections
    and configuration if `sources` is None."""
    connections = (
        sorted(sources.fleet.connections(), key=lambda connection: connection.id) if sources is not None else []
    )
    summary = _facts(sources) + _proxies(connections) if sources is not None else ""
    section_html = "".join(
        f"<h2>{html.escape(title)}</h2>\n{_section(list(pages), connections)}" for title, pages in sections.items()
    )
    answer = _headline(headline, time.time()) if headline is not None else ""
    return _TEMPLATE.substitute(title="pilot-discovery", headline=answer, summary=summary, sections=section_html)


def _headline(finding: MeshFinding, now: float) -> str:
    """Return the sentence that says what is wrong, with links into the dashboard."""
    text = "".join(_part(part, now) for part in finding.parts)
    return f'<p class="headline {finding.level}">{text} <a href="{DASHBOARD}">Open the dashboard</a></p>\n'


def _part(part: Part, now: float) -> str:
    if isinstance(part, ViewLink):
        return f'<a href="{html.escape(DASHBOARD + part.href)}">{html.escape(part.text)}</a>'
    return html.escape(part if isinstance(part, str) else moment_text(part, now))


def _facts(sources: Sources) -> str:
    problems = len(sources.problems())
    facts = [
        ("version", sources.build.version, ""),
        ("proxies connected", len(sources.fleet.connections()), ""),
        ("services", len(SERVICE.table(sources.db)) + len(SERVICE_ENTRY.table(sources.db)), ""),
        ("virtual services", len(VIRTUAL_SERVICE.table(sources.db)), ""),
        ("errors, warnings and notes", problems, "bad" if problems else ""),
    ]
    items = "".join(
        f'<li class="{kind}"><b>{html.escape(str(value))}</b><span>{name}</span></li>' for name, value, kind in facts
    )
    return f'<ul class="facts">{items}</ul>\n'


def _proxies(connections: Sequence[ConnectedProxy]) -> str:
    if not connections:
        return ""
    rows = "".join(map(_proxy, connections[:_SHOWN_PROXIES]))
    rest = f"<p>The first {_SHOWN_PROXIES} of {len(connections)}.</p>" if len(connections) > _SHOWN_PROXIES else ""
    head = "<tr><th>proxy</th><th>since</th><th>show</th></tr>"
    return f'<h2>Connected</h2>\n<div class="box"><table>{head}{rows}</table></div>{rest}\n'


def _proxy(connection: ConnectedProxy) -> str:
    query = urllib.parse.urlencode({"proxyID": connection.id, "pretty": ""})
    links = " ".join(f'<a href="/debug/{page}?{html.escape(query)}">{name}</a>' for name, page in _PROXY_PAGES.items())
    since = datetime.timedelta(seconds=int(max(0.0, time.time() - connection.connected_at)))
    name = f"{html.escape(connection.id)} <p>{connection.proxy.type} {html.escape(connection.proxy.version)}</p>"
    return f'<tr><td class="path">{name}</td><td>{since}</td><td class="links">{links}</td></tr>\n'


def _section(pages: Sequence[Page], connections: Sequence[ConnectedProxy]) -> str:
    table = f'<div class="box"><table class="pages">{"".join(map(_row, pages))}</table></div>\n'
    return (_form(connections) if any(page.of_proxy for page in pages) else "") + table


def _form(connections: Sequence[ConnectedProxy]) -> str:
    """Return the form for the parameters of proxy pages. Its buttons open the pages."""
    options = "".join(f'<option value="{html.escape(connection.id)}">' for connection in connections[:_SHOWN_PROXIES])
    return f"""<form id="{_FORM}"><input type="hidden" name="pretty" value="">
<label>proxy<input name="proxyID" list="proxies" required placeholder="pod.namespace or part of it"></label>
<label>resource for explain<input name="resource" placeholder="outbound|80||reviews.default.svc.cluster.local"></label>
<datalist id="proxies">{options}</datalist></form>
"""


def _row(page: Page) -> str:
    if page.of_proxy:
        link = f'<button class="path" form="{_FORM}" formaction="{page.path}">{page.path}</button>'
    else:
        link = f'<a class="path" href="{_href(page.path, "")}">{page.path}</a>'
    examples = "".join(
        f'<a class="path more" href="{_href(page.path, query)}">?{html.escape(query)}</a>' for query in page.examples
    )
    return f"<tr><td>{link}{examples}</td><td>{html.escape(page.about)}</td></tr>\n"


def _href(path: str, query: str) -> str:
    return html.escape(f"{path}?{query}" if query else path)
