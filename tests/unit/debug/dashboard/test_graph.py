"""Graph of the mesh: services, callers and routes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.dashboard.graph import CachedGraph
from pilot.debug.dashboard.mesh import WHOLE, mesh_context, show_graph
from testing.mesh.debug_server import FakeConnection, sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import World, rows_of
from tests.unit.debug.dashboard.test_fleet import connection

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


async def show(
    mesh_world: World,
    *namespaces: str,
    problems: tuple[Problem, ...] = (),
    connections: tuple[FakeConnection, ...] = (),
) -> dict[str, Any]:
    graph = await CachedGraph(mesh_world.mesh).get()
    view = show_graph(
        graph, mesh_context(sources(mesh_world.mesh, *connections, problems=problems)), frozenset(namespaces)
    )
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(view))
    return decoded


def services(view: dict[str, Any]) -> dict[str, Any]:
    return {s["host"]: s for namespace in view["namespaces"] for s in namespace["services"]}


async def test_services_are_grouped_by_namespace() -> None:
    problem = Problem(code="c", object=ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "web"), message="m")
    view = await show(
        world(WEB, WEB_POD, SLICE, IDLE, service("idler", "[]")),
        problems=(problem,),
        connections=(connection("web-0.a"),),
    )
    (namespace,) = view["namespaces"]
    assert {name: namespace[name] for name in ("name", "count", "unready", "problems", "proxies")} == {
        "name": "a",
        "count": 3,
        "unready": 2,
        "problems": 1,
        "proxies": 1,
    }
    web = services(view)[HOST]
    assert (web["ready"], web["total"], web["ports"], web["problems"], web["callers"]) == (
        1,
        1,
        [80],
        1,
        None,
    )


@pytest.mark.parametrize(
    ("policies", "callers"),
    [
        ((), None),
        ((policy("p", "{}", "DENY"),), None),
        ((policy("p", "{from: [{source: {namespaces: [shop]}}]}"),), [["shop", ""]]),
        ((policy("p", "{from: [{source: {principals: [cluster.local/ns/b/sa/c, '*']}}]}"),), [["b", "c"]]),
        ((policy("p", "{from: [{source: {serviceAccounts: [x/y, z]}}]}"),), [["x", "y"], ["a", "z"]]),
        (
            (
                policy("p", "{from: [{source: {namespaces: [b]}}]}"),
                policy("q", "{to: [{operation: {methods: [GET]}}]}"),
            ),
            None,
        ),
        ((policy("p", ""),), []),
    ],
)
async def test_callers_come_from_policies(policies: tuple[Plain, ...], callers: list[list[str]] | None) -> None:
    web = services(await show(world(WEB, WEB_POD, SLICE, *policies)))[HOST]
    assert web["callers"] == callers
    assert web["policies"] == [f"{p['spec']['action']} a/{p['metadata']['name']}" for p in policies]


async def test_routes_link_gateways_and_hosts_to_services() -> None:
    entry = make(
        "ServiceEntry", "shop", "{hosts: [shop.example], ports: [{name: http, number: 80}], resolution: NONE}", "a"
    )
    gateway = make("Gateway", "g", "{servers: [{hosts: ['*'], port: {name: http, number: 80, protocol: HTTP}}]}", "a")
    view = await show(world(WEB, entry, gateway, route("[g, mesh]")))
    assert view["gateways"] == [{"namespace": "a", "name": "g", "problems": 0}]
    assert [(link["from"], link["to"], link["by"]) for link in view["links"]] == [
        ("gateway a/g", f"service {HOST}", "a/r"),
        ("service shop.example", f"service {HOST}", "a/r"),
    ]


async def test_folded_links_are_counted_and_resolved() -> None:
    entry = make(
        "ServiceEntry", "shop", "{hosts: [shop.example], ports: [{name: http, number: 80}], resolution: NONE}", "b"
    )
    other = make(
        "ServiceEntry", "more", "{hosts: [more.example], ports: [{name: http, number: 80}], resolution: NONE}", "b"
    )
    routes = [
        make(
            "VirtualService",
            "r",
            f"{{hosts: [shop.example, more.example], http: [{{route: [{{destination: {{host: {host}}}}}]}}]}}",
            "b",
        )
        for host in (HOST, "gone.a.svc.cluster.local")
    ]
    policies = [policy(name, "{from: [{source: {namespaces: [b, nowhere]}}]}") for name in ("p", "q")]
    view = await show(world(WEB, WEB_POD, SLICE, entry, other, routes[0], policies[0]))
    assert view["links"] == [
        {"from": "namespace b", "to": f"service {HOST}", "kind": "policy", "by": "", "count": 1},
        {"from": "service more.example", "to": f"service {HOST}", "kind": "route", "by": "b/r", "count": 1},
        {"from": "service shop.example", "to": f"service {HOST}", "kind": "route", "by": "b/r", "count": 1},
    ]
    assert (await show(world(WEB, WEB_POD, SLICE, entry, other, routes[1])))["links"] == []
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(WHOLE)]
    folded = await show(world(WEB, WEB_POD, SLICE, IDLE, entry, other, routes[0], *policies, *many))
    assert folded["links"] == [
        {"from": "namespace b", "to": "namespace a", "kind": "policy", "by": "", "count": 1},
        {"from": "namespace b", "to": "namespace a", "kind": "route", "by": "b/r", "count": 2},
    ]


async def test_large_mesh_lists_only_requested_namespaces() -> None:
    many = [service(f"s{number}", "[{name: http, port: 80}]") for number in range(WHOLE)]
    caller = make("ServiceEntry", "b", "{hosts: [b.example], ports: [{name: http, number: 80}], resolution: NONE}", "b")
    mesh = world(WEB, WEB_POD, SLICE, caller, policy("p", "{from: [{source: {namespaces: [b]}}]}"), *many)
    folded = await show(mesh)
    assert services(folded) == {}
    assert [(link["from"], link["to"], link["kind"]) for link in folded["links"]] == [
        ("namespace b", "namespace a", "policy")
    ]
    assert set(services(await show(mesh, "b"))) == {"b.example"}


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
