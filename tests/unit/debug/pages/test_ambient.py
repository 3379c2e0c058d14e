"""Debug pages about ztunnels."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from pilot.debug.pages.ambient import ambientz
from pilot.debug.pages.config_dump import config_dump
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


def build_response(page: Any) -> Any:
    return page.make()


def test_ambientz_lists_workloads_services_and_policies() -> None:
    response = build_response(ambientz(sources(ambient(*OBJECTS).mesh), {}))
    assert [workload["uid"] for workload in response["workloads"]] == ["Kubernetes//Pod/a/p"]
    assert [base64.b64decode(raw) for raw in response["workloads"][0]["addresses"]] == [b"10.1.0.1"]
    assert [base64.b64decode(address["address"]) for address in response["services"][0]["addresses"]] == [b"10.96.0.1"]
    assert [(policy["namespace"], policy["name"], policy["action"]) for policy in response["policies"]] == [
        ("a", "deny", "DENY")
    ]


def test_ambientz_is_empty_without_ambient_mode() -> None:
    world = World()
    world.apply_objects(*OBJECTS)
    assert build_response(ambientz(sources(world.mesh), {})) == {"workloads": None, "services": None, "policies": None}


def test_ztunnel_config_dump() -> None:
    world = ambient(*OBJECTS)
    connection = FakeConnection("zt-1", ztunnel(world), proxy("ztunnel", "zt", "istio-system", "10.9.9.9"))
    connection.subscriptions = {ADDRESS: FakeWatch(), AUTHORIZATION: FakeWatch()}

    def dump(**query: str) -> list[Any]:
        return build_response(asyncio.run(config_dump(sources(world.mesh, connection), {"proxyID": "zt-1", **query})))[
            "configs"
        ]

    assert sorted(entry.get("workload", entry.get("service"))["name"] for entry in dump()) == ["p", "web"]
    assert [entry["name"] for entry in dump(types="wads")] == ["deny"]
    connection.subscriptions = {ADDRESS: FakeWatch(names=["/10.1.0.1"])}
    assert [entry["workload"]["name"] for entry in dump()] == ["p"]
