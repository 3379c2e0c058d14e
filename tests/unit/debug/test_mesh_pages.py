"""Debug pages about configuration, the registry and caches."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.config.group_kind import NETWORKING
from pilot.debug import application as application_module
from pilot.debug.application import application
from pilot.debug.page import Answer
from pilot.debug.sources import Sources
from pilot.envoy.resource import Resource
from testing.mesh.debug_pages import Ask
from testing.mesh.debug_server import FakeFleet, with_health

# -- configuration and registry --------------------------------------------------------------------------------------------


async def test_configz(ask: Ask) -> None:
    assert await ask("/debug/configz") == [
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "DestinationRule",
            "metadata": {"name": "tea", "namespace": "shop"},
            "spec": {"host": "tea", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1.5s"}}}},
        }
    ]


async def test_resourcesz(ask: Ask) -> None:
    assert {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"} in await ask("/debug/resourcesz")


async def test_mesh(ask: Ask) -> None:
    config = await ask("/debug/mesh")
    assert (config["accessLogFile"], config["connectTimeout"], config["rootNamespace"]) == (
        "/dev/stdout",
        "3s",
        "istio-system",
    )


async def test_problemz(ask: Ask) -> None:
    assert await ask("/debug/problemz") == [
        {
            "severity": "warning",
            "code": "unknown-host",
            "group": NETWORKING,
            "kind": "VirtualService",
            "namespace": "shop",
            "name": "tea",
            "path": "spec.hosts[0]",
            "file": "a.yaml",
            "line": 7,
            "message": "no such host",
        }
    ]
    assert await ask("/debug/problemz?namespace=mugs") == []


async def test_registryz(ask: Ask) -> None:
    tea, cups = await ask("/debug/registryz")
    assert tea["hostname"] == "tea.shop.svc.cluster.local"
    assert tea["ports"] == [{"name": "http", "port": 80, "protocol": "HTTP"}]
    assert tea["clusterVIPs"] == {"Addresses": {"Kubernetes": ["10.1.0.1"]}}
    assert (tea["defaultAddress"], tea["creationTime"]) == ("10.1.0.1", "2024-01-02T03:04:05Z")
    attributes = tea["Attributes"]
    assert (attributes["Type"], attributes["ObjectName"], attributes["ClusterExternalAddresses"]) == (
        "ClusterIP",
        "",
        {"Addresses": None},
    )
    assert (attributes["ServiceRegistry"], attributes["Name"], attributes["Namespace"]) == ("Kubernetes", "tea", "shop")
    assert (attributes["Labels"], attributes["LabelSelectors"], attributes["ExportTo"]) == (
        {"team": "leaves"},
        {"app": "tea"},
        None,
    )
    assert attributes["Visibility"] == 0
    assert (tea["Resolution"], tea["MeshExternal"]) == (0, False)
    assert cups["ports"][0]["protocol"] == "TCP"


@pytest.mark.parametrize("page", ["endpointShardz", "endpointz"])
async def test_endpoints(ask: Ask, page: str) -> None:
    shards = await ask(f"/debug/{page}")
    tea = shards["tea.shop.svc.cluster.local"]["shop"]
    assert tea["ServiceAccounts"] == {"spiffe://cluster.local/ns/shop/sa/brewer": {}}
    (endpoint,) = tea["Shards"]["Kubernetes/Kubernetes"]
    assert (endpoint["Addresses"], endpoint["EndpointPort"], endpoint["ServicePortName"]) == (
        ["10.2.0.1"],
        8080,
        "http",
    )
    assert (endpoint["HealthStatus"], endpoint["NodeName"], endpoint["Namespace"]) == (1, "node-1", "shop")
    assert endpoint["ServiceAccount"] == "spiffe://cluster.local/ns/shop/sa/brewer"
    assert (endpoint["SendUnhealthyEndpoints"], endpoint["Labels"]["topology.istio.io/network"]) == (True, "")
    assert "cups.shop.svc.cluster.local" not in shards


async def test_instancesz(ask: Ask, pages: Sources) -> None:
    assert isinstance(pages.fleet, FakeFleet)
    pages.fleet.current.pop()
    instances = await ask("/debug/instancesz")
    assert list(instances) == ["tea-1.shop"]
    (target,) = instances["tea-1.shop"]
    assert target["Service"]["hostname"] == "tea.shop.svc.cluster.local"
    assert target["Port"] == {"name": "http", "port": 80, "protocol": "HTTP", "TargetPort": 8080}


async def test_networkz(ask: Ask) -> None:
    assert await ask("/debug/networkz") == []


async def test_push_status_is_empty_before_the_first_check(
    client: TestClient[web.Request, web.Application],
) -> None:
    async with client.get("/debug/push_status") as response:
        assert (response.status, await response.text()) == (200, "")


async def test_push_status(pages: Sources) -> None:
    page_sources = await with_health(pages)
    async with (
        TestClient(TestServer(application(page_sources))) as client,
        client.get("/debug/push_status") as response,
    ):
        text = await response.text()
    assert text.startswith('{\n    "pilot_no_ip"')
    assert json.loads(text) == {
        "pilot_eds_no_instances": {"outbound|90||cups.shop.svc.cluster.local": {}},
        "pilot_no_ip": {"cup-1.mugs": {"proxy": "cup-1.mugs"}},
    }


async def test_pushcontext(ask: Ask) -> None:
    context = await ask("/debug/pushcontext")
    assert context["AuthorizationPolicies"] == (await ask("/debug/authorizationz"))["authorization_policies"]
    assert (context["NetworkGateways"], context["UnresolvedGateways"]) == (None, None)


async def test_pages_without_content(ask: Ask) -> None:
    assert await ask("/debug/mcsz") is None
    assert await ask("/debug/ambientz") == {"workloads": None, "services": None, "policies": None}


async def test_cachez(ask: Ask, pages: Sources) -> None:
    assert isinstance(pages.fleet, FakeFleet)
    first, second, other = (
        Resource("one", "t/a", b"x" * 200),
        Resource("two", "t/a", b"y" * 900),
        Resource("one", "t/a", b"z" * 100),
    )
    pages.fleet.resources = {"t/a": [{"one": first, "two": second}, {"one": other, "two": second}], "t/b": [{}]}
    assert await ask("/debug/cachez") == {"t/a": ["one", "two", "one", "two"]}
    sizes = await ask("/debug/cachez?sizes=true")
    assert sizes == {"total": "1.2kB", "t/a": "1.2kB"}
    assert pages.fleet.cache_clears == 0


async def test_clearing_the_cache(client: TestClient[web.Request, web.Application], pages: Sources) -> None:
    async with client.get("/debug/cachez?clear=true") as response:
        assert (response.status, await response.text()) == (200, "Cache cleared\n")
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.cache_clears == 1


async def test_krtz_lists_derivations_with_counts(ask: Ask) -> None:
    await ask("/debug/registryz")
    states = {entry["name"]: entry["state"] for entry in await ask("/debug/krtz")}
    assert {state["inputCollection"] for state in states.values()} == {"table", "derived"}
    assert states["service"]["outputs"] == {"count": 2}
    values = states["service"]["inputs"]
    assert "service(tea.shop.svc.cluster.local/shop)" in values
    assert all(value["dependencies"] for value in values.values())


async def test_concurrent_pages_are_limited(pages: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    running, peak, resume = 0, 0, asyncio.Event()

    async def respond_slowly(*_: Any) -> Answer:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await resume.wait()
        running -= 1
        return Answer(200, "text/plain", b"")

    monkeypatch.setattr(application_module, "MAX_CONCURRENT", 2)
    monkeypatch.setattr(application_module, "answer", respond_slowly)
    async with TestClient(TestServer(application(pages))) as client:
        responses = [asyncio.create_task(client.get("/debug/connections")) for _ in range(5)]
        async with asyncio.timeout(10):
            while running < 2:
                await asyncio.sleep(0)
            resume.set()
            assert {(await response).status for response in responses} == {200}
    assert peak == 2
