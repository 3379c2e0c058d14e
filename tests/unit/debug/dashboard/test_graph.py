"""Incremental updates of the graph of the mesh."""

from __future__ import annotations

from pilot.debug.dashboard.graph import CachedGraph
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import rows_of

HOST = "web.a.svc.cluster.local"
WEB_POD = pod("web-0", "10.0.0.1", labels="{app: web}")
WEB = service("web", "[{name: http, port: 80, targetPort: 8080}]")
IDLE = service("idle", "[{name: http, port: 80}]")
SLICE = endpoint_slice("web", at("10.0.0.1", "web-0"))


def policy(name: str, rules: str, action: str = "ALLOW") -> Plain:
    return make("AuthorizationPolicy", name, f"{{action: {action}, rules: [{rules}]}}", "a")


def route(gateways: str) -> Plain:
    return make(
        "VirtualService",
        "r",
        f"{{hosts: [shop.example], gateways: {gateways}, http: [{{route: [{{destination: {{host: web}}}}]}}]}}",
        "a",
    )


async def test_cached_graph_follows_changes() -> None:
    mesh_world = world(WEB, route("[mesh]"))
    cached = CachedGraph(mesh_world.mesh)
    cached.keep()
    assert [len(part) for part in await cached.get()] == [1, 0, 1]
    gateway = make("Gateway", "g", "{servers: [{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]}", "a")
    mesh_world.apply_objects(IDLE, gateway)
    assert [len(part) for part in await cached.get()] == [2, 1, 1]
    mesh_world.set(dict.fromkeys(rows_of([WEB, route("[mesh]")])))
    graph = await cached.get()
    assert ([facts.host for facts in graph.services], graph.links) == (["idle.a.svc.cluster.local"], [])


async def test_graph_is_used_again_if_nothing_has_changed() -> None:
    mesh_world = world(WEB, route("[mesh]"))
    cached = CachedGraph(mesh_world.mesh)
    graph = await cached.get()
    assert await cached.get() is graph
    cached.keep()
    mesh_world.apply_objects(IDLE)
    assert len((await cached.get()).services) == 2
    cached.release()
    mesh_world.set(dict.fromkeys(rows_of([IDLE])))
    assert len((await cached.get()).services) == 1
