"""Search on the dashboard."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.search import MOST, MOST_IN_FULL, search
from testing.mesh.debug_server import sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, make, world
from tests.unit.debug.dashboard.test_fleet import connection

OBJECTS = (
    service("web", "[{name: http, port: 80}]"),
    service("old-web", "[{name: http, port: 80}]"),
    make("VirtualService", "web", "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}", "a"),
)


async def found(text: str, *objects: Plain, most: int = MOST) -> dict[str, list[str]]:
    mesh_world = world(*(objects or OBJECTS))
    pages = sources(mesh_world.mesh, connection("web-0.a"), connection("api-0.b"))
    answer = await search(pages, await CachedGraph(mesh_world.mesh).get(), text, most)
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
        ("a/web", ["web"], ["web-0.a-1"], ["VirtualService web"]),
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


async def test_objects_are_found_by_their_hosts() -> None:
    edge = make("VirtualService", "edge", "{hosts: [shop.example.com], http: [{route: [{destination: {host: web}}]}]}")
    servers = "[{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*/shop.example.com']}]"
    gateway = make("Gateway", "front", f"{{selector: {{app: gateway}}, servers: {servers}}}")
    answer = await found("shop.example.com", edge, gateway)
    assert answer["objects"] == ["VirtualService edge", "Gateway front"]


async def test_equal_names_come_first() -> None:
    named = make("VirtualService", "web", "{hosts: [x], http: [{route: [{destination: {host: y}}]}]}", "z")
    other = make("VirtualService", "webs", "{hosts: [x], http: [{route: [{destination: {host: y}}]}]}", "a")
    assert (await found("z/web", named, other))["objects"] == ["VirtualService web"]
    assert (await found("web", named, other))["objects"] == ["VirtualService web", "VirtualService webs"]


async def test_results_are_limited_unless_more_are_requested() -> None:
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(MOST + 1)]
    assert len((await found("s", *many))["services"]) == MOST
    assert len((await found("s", *many, most=MOST_IN_FULL))["services"]) == MOST + 1
