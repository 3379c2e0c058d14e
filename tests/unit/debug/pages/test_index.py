"""The index of the debug pages."""

from __future__ import annotations

import time

import pytest

from pilot.debug.page import Page
from pilot.debug.page_routes import sections
from pilot.debug.pages import index
from pilot.debug.pages.index import _proxies, render_index
from pilot.debug.sources import Sources
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.settings.process import DebugSettings
from testing.mesh.debug_pages import Ask
from testing.mesh.debug_server import FakeConnection


def index_lines(html: str) -> list[str]:
    """Return the lines of the index after its head, without the common lines."""
    return [line for line in html.partition("configz?pretty</a></p>\n")[2].splitlines() if line][:-3]


def proxy_row(name: str, description: str, since: str) -> str:
    links = " ".join(
        f'<a href="/debug/{page}?proxyID={name}&amp;pretty=">{text}</a>'
        for page, text in (
            ("config_dump", "configuration"),
            ("edsz", "endpoints"),
            ("sidecarz", "scope"),
            ("adsz", "watches"),
        )
    )
    return f'<tr><td class="path">{name} <p>{description}</p></td><td>{since}</td><td class="links">{links}</td></tr>'


def test_index_lines(pages: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_065.5)
    mesh_page = Page("/debug/a", "What a<b says", lambda *_: None, examples=("x=1&y=2", "z"))
    proxy_page = Page("/debug/b", "What b says", lambda *_: None, of_proxy=True)
    facts = [
        ("", "1.2.3", "version"),
        ("", 2, "proxies connected"),
        ("", 2, "services"),
        ("", 0, "virtual services"),
        ("bad", 1, "errors, warnings and notes"),
    ]
    items = "".join(f'<li class="{kind}"><b>{value}</b><span>{name}</span></li>' for kind, value, name in facts)
    head = '<div class="box"><table><tr><th>proxy</th><th>since</th><th>show</th></tr>'
    examples = "".join(f'<a class="path more" href="/debug/a?{query}">?{query}</a>' for query in ("x=1&amp;y=2", "z"))
    anonymous = [
        "<h2>All &amp; everything</h2>",
        f'<div class="box"><table class="pages"><tr><td><a class="path" href="/debug/a">/debug/a</a>{examples}</td><td>What a&lt;b says</td></tr>',
        "</table></div>",
        "<h2>One</h2>",
        '<form id="one-proxy"><input type="hidden" name="pretty" value="">',
        '<label>proxy<input name="proxyID" list="proxies" required placeholder="pod.namespace or part of it"></label>',
        '<label>resource for explain<input name="resource" placeholder="outbound|80||reviews.default.svc.cluster.local"></label>',
        '<datalist id="proxies"></datalist></form>',
        '<div class="box"><table class="pages"><tr><td><button class="path" form="one-proxy" formaction="/debug/b">/debug/b</button></td>'
        "<td>What b says</td></tr>",
        "</table></div>",
    ]
    sections = {"All & everything": [mesh_page], "One": [proxy_page]}
    assert index_lines(render_index(sections)) == anonymous
    options = '<option value="cup-1.mugs-4"><option value="tea-1.shop-3">'
    with_options = [line.replace("</datalist>", f"{options}</datalist>") for line in anonymous]
    assert index_lines(render_index(sections, pages)) == [
        f'<ul class="facts">{items}</ul>',
        "<h2>Connected</h2>",
        head + proxy_row("cup-1.mugs-4", "router ", "0:01:05"),
        proxy_row("tea-1.shop-3", "sidecar 1.32.0", "0:01:05"),
        "</table></div>",
        *with_options,
    ]
    monkeypatch.setattr(time, "time", lambda: 1_600_000_000.0)  # a clock set back
    monkeypatch.setattr(index, "_SHOWN_PROXIES", 1)
    limited = index_lines(render_index(sections, pages))
    assert limited[2:4] == [
        head + proxy_row("cup-1.mugs-4", "router ", "0:00:00"),
        "</table></div><p>The first 1 of 2.</p>",
    ]
    assert '<datalist id="proxies"><option value="cup-1.mugs-4"></datalist></form>' in limited


PROXY = Proxy(
    type=NodeType.SIDECAR,
    id="web-0.a",
    ips=("10.0.0.1",),
    dns_domain="",
    namespace="a",
    metadata={"CLUSTER_ID": "east"},
    version="1.30.0",
)


@pytest.mark.parametrize(("count", "note"), [(50, ""), (51, "<p>The first 50 of 51.</p>")])
def test_index_lists_fifty_proxies(count: int, note: str) -> None:
    page = _proxies([FakeConnection(f"web-{n}.a-1", f"web-{n}.a", PROXY) for n in range(count)])
    assert page.count('<td class="path">') == 50
    assert page.endswith(f"</table></div>{note}\n")


async def test_index_lists_pages_and_proxies(ask: Ask) -> None:
    text = await ask("/debug")
    for page in (page for section in sections(DebugSettings()).values() for page in section):
        assert f'{"formaction" if page.of_proxy else "href"}="{page.path}"' in text
    assert "tea-1.shop-3" in text
    assert "/debug/config_dump?proxyID=tea-1.shop-3&amp;pretty=" in text
    assert '<option value="tea-1.shop-3">' in text
