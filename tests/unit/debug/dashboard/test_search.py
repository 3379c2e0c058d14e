"""Search on the dashboard."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.search import MOST, search
from testing.mesh.debug_server import sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, make, world
from tests.unit.debug.dashboard.test_fleet import connection

OBJECTS = (
    service("web", "[{name: http, port: 80}]"),
    service("old-web", "[{name: http, port: 80}]"),
    make("VirtualService", "web", "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}", "a"),
)


async def found(text: str, *objects: Plain) -> dict[str, list[str]]:
    mesh_world = world(*(objects or OBJECTS))
    pages = sources(mesh_world.mesh, connection("web-0.a"), connection("api-0.b"))
    answer = await search(pages, await CachedGraph(mesh_world.mesh).get(), text)
    return {
        kind: [item.get("host") or item.get("id") or f"{item['kind']} {item['name']}" for item in of["items"]]
        for kind, of in answer.items()
    }


@pytest.mark.parametrize(
    ("text", "services", "proxies", "objects"),
    [
        ("web", ["web", "old-web"], ["web-0.a-1"], ["VirtualService web"]),
        ("WEB virtualservice", [], [], ["VirtualService web"]),
        ("old a", ["old-web"], [], []),
        ("b", ["old-web", "web"], ["api-0.b-1", "web-0.a-1"], ["VirtualService web"]),
        ("nosuch", [], [], []),
        ("", [], [], []),
    ],
)
async def test_all_words_must_match_and_names_count_most(
    text: str, services: list[str], proxies: list[str], objects: list[str]
) -> None:
    assert await found(text) == {
        "services": [f"{name}.a.svc.cluster.local" for name in services],
        "proxies": proxies,
        "objects": objects,
    }


async def test_results_are_limited() -> None:
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(MOST + 1)]
    assert len((await found("s", *many))["services"]) == MOST
