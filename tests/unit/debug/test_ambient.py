"""Pages that show what ztunnels are told."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from pilot.debug.ambient import ambientz
from pilot.debug.config_dump import config_dump
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION
from testing.clients.ztunnel import ambient, ztunnel
from testing.mesh.debug_server import FakeConnection, FakeWatch, sources
from testing.mesh.objects import make, pod
from testing.mesh.world import World, proxy

OBJECTS = (
    make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}"),
    pod("p", "10.1.0.1"),
    make("AuthorizationPolicy", "deny", "{action: DENY, rules: [{}]}"),
)


def made(page: Any) -> Any:
    return page.make()


def test_everything_that_ztunnels_are_told() -> None:
    found = made(ambientz(sources(ambient(*OBJECTS).mesh), {}))
    assert [w["uid"] for w in found["workloads"]] == ["Kubernetes//Pod/a/p"]
    assert [base64.b64decode(raw) for raw in found["workloads"][0]["addresses"]] == [b"10.1.0.1"]
    assert [base64.b64decode(a["address"]) for a in found["services"][0]["addresses"]] == [b"10.96.0.1"]
    assert [(p["namespace"], p["name"], p["action"]) for p in found["policies"]] == [("a", "deny", "DENY")]


def test_a_mesh_that_is_not_ambient_has_nothing_to_tell() -> None:
    world = World()
    world.apply_objects(*OBJECTS)
    assert made(ambientz(sources(world.mesh), {})) == {"workloads": None, "services": None, "policies": None}


def test_the_dump_of_a_ztunnel() -> None:
    world = ambient(*OBJECTS)
    connected = FakeConnection("zt-1", ztunnel(world), proxy("ztunnel", "zt", "istio-system", "10.9.9.9"))
    connected.subscriptions = {ADDRESS: FakeWatch(), AUTHORIZATION: FakeWatch()}

    def dump(**query: str) -> list[Any]:
        return made(asyncio.run(config_dump(sources(world.mesh, connected), {"proxyID": "zt-1", **query})))["configs"]

    assert sorted(one.get("workload", one.get("service"))["name"] for one in dump()) == ["p", "web"]
    assert [one["name"] for one in dump(types="wads")] == ["deny"]
    connected.subscriptions = {ADDRESS: FakeWatch(names=["/10.1.0.1"])}
    assert [one["workload"]["name"] for one in dump()] == ["p"]
