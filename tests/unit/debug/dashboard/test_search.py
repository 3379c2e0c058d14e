"""Search on the dashboard."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.mesh import MeshContext
from pilot.debug.dashboard.search import MOST, MOST_IN_FULL, search
from testing.mesh.debug_server import sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, make, world
from tests.unit.debug.dashboard.test_fleet import connection
from tests.unit.debug.dashboard.test_graph import SLICE, WEB, WEB_POD
from tests.unit.debug.dashboard.test_mesh import NOTHING, problem

OBJECTS = (
    service("web", "[{name: http, port: 80}]"),
    service("old-web", "[{name: http, port: 80}]"),
    make("VirtualService", "web", "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}", "a"),
)


async def found(text: str, *objects: Plain, most: int = MOST) -> dict[str, list[str]]:
    mesh_world = world(*(objects or OBJECTS))
    pages = sources(mesh_world.mesh, connection("web-0.a"), connection("api-0.b"))
    answer = await search(pages, await CachedGraph(mesh_world.mesh).get(), NOTHING, text, most)
    return {
        kind: [
            item.get("host") or item.get("id") or f"{item.get('kind', 'Namespace')} {item['name']}"
            for item in of["items"]
        ]
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
        ("a", ["old-web", "web"], ["api-0.b-1", "web-0.a-1"], ["VirtualService web"]),
        ("nosuch", [], [], []),
        ("", [], [], []),
    ],
)
async def test_all_words_must_match_and_names_count_most(
    text: str, services: list[str], proxies: list[str], objects: list[str]
) -> None:
    assert await found(text) == {
        "namespaces": ["Namespace a"] if text == "a" else [],
        "services": [f"{name}.a.svc.cluster.local" for name in services],
        "proxies": proxies,
        "objects": objects,
    }


async def test_objects_are_found_by_hosts_that_their_wildcards_match() -> None:
    edge = make("VirtualService", "edge", "{hosts: ['*.example.com'], http: [{route: [{destination: {host: web}}]}]}")
    assert (await found("shop.example.com", edge))["objects"] == ["VirtualService edge"]
    assert (await found("shop.example.org", edge))["objects"] == []


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


async def test_addresses_of_endpoints_are_found() -> None:
    answer = await found("10.0.0.1", WEB, WEB_POD, SLICE)
    assert answer["services"] == ["web.a.svc.cluster.local"]
    assert "EndpointSlice" in " ".join(answer["objects"])
    assert (await found("10.9.9.9", WEB, WEB_POD, SLICE))["services"] == []


async def test_services_with_problems_are_first_among_equal_names() -> None:
    in_b = service("web", "[{name: http, port: 80}]")
    in_b["metadata"]["namespace"] = "b"
    mesh_world = world(*OBJECTS, in_b)
    graph, context = (
        await CachedGraph(mesh_world.mesh).get(),
        MeshContext([(problem("Service", "b", "web"), ())], [], {}),
    )
    items = (await search(sources(mesh_world.mesh), graph, context, "web"))["services"]["items"]
    assert [(item["namespace"], item["level"]) for item in items[:2]] == [("b", "bad"), ("a", "warn")]
