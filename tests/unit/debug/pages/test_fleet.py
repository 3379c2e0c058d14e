"""Debug pages about connected proxies."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug.application import application
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_pages import Ask
from testing.mesh.debug_server import FakeFleet, sources

AT = "2023-11-14T22:13:20.000000Z"


TYPES = [BY_SHORT_NAME[name] for name in ("cds", "lds", "eds", "rds")]


NAMED = ("cluster", "listener", "route", "endpoint")


def client_entry(name: str) -> dict[str, Any]:
    return {"connectionId": name, "connectedAt": AT, "address": "10.0.0.9:4444"}


async def test_connections_and_adsz(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/connections") == {
        "totalClients": 2,
        "clients": [client_entry("cup-1.mugs-4"), client_entry("tea-1.shop-3")],
    }
    pages.fleet.connections()[1].subscriptions = {}  # type: ignore[misc]
    cup = client_entry("cup-1.mugs-4") | {"labels": {"topology.istio.io/cluster": "Kubernetes"}}
    tea = client_entry("tea-1.shop-3") | {
        "labels": {"app": "tea", "topology.istio.io/cluster": "Kubernetes"},
        "metadata": {"NAMESPACE": "shop", "LABELS": {"app": "tea"}, "CLUSTER_ID": "Kubernetes"},
        "watches": {type_url: [] for type_url in TYPES},
    }
    assert await ask("/debug/adsz") == {"totalClients": 2, "clients": [cup, tea]}


async def test_syncz(ask: Ask, pages: Sources) -> None:
    numbers = {f"{name}_{state}": "n1" for name in NAMED for state in ("sent", "acked")}
    resources = {type_url: {"sent": "n1", "acked": "n1", "sentTime": AT} for type_url in TYPES}
    cup = {"cluster_id": "Kubernetes", "proxy": "cup-1.mugs", "proxy_type": "router", "resources": resources} | numbers
    tea = {
        "cluster_id": "Kubernetes",
        "proxy": "tea-1.shop",
        "proxy_type": "sidecar",
        "istio_version": "1.32.0",
        "resources": resources,
    } | numbers
    assert await ask("/debug/syncz") == [cup, tea]
    assert await ask("/debug/syncz?namespace=shop") == [tea]
    assert await ask("/debug/syncz?namespace=none") == []
    watch = pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["cds"]]
    watch.sent_at, watch.nonce_acked = 0.0, ""  # type: ignore[misc]
    watches = pages.fleet.connections()[0].subscriptions
    watches[BY_SHORT_NAME["lds"]].last_error = "bad listener"  # type: ignore[misc]
    watches[BY_SHORT_NAME["lds"]].rejected_since = 1_700_000_000.0  # type: ignore[misc]
    (waiting,) = await ask("/debug/syncz?namespace=shop")
    assert waiting["resources"][BY_SHORT_NAME["cds"]] == {"sent": "n1", "sentTime": "0001-01-01T00:00:00Z"}
    rejected = resources[BY_SHORT_NAME["lds"]] | {"lastError": "bad listener", "rejectedSince": AT}
    assert waiting["resources"][BY_SHORT_NAME["lds"]] == rejected


async def test_adsz_lists_wildcard_resources_of_delta_streams(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["cds"]].wildcard_names = ["b", "a"]  # type: ignore[misc]
    assert (await ask("/debug/adsz"))["clients"][1]["watches"][BY_SHORT_NAME["cds"]] == ["a", "b"]


async def test_adsz_of_one_proxy(ask: Ask) -> None:
    response = await ask("/debug/adsz?proxyID=cup-1")
    assert [client["connectionId"] for client in response["clients"]] == ["cup-1.mugs-4"]


async def test_namespace_distinguishes_proxies_with_equal_pod_names(ask: Ask, pages: Sources) -> None:
    for connection in pages.fleet.connections():
        namespace = connection.proxy.namespace
        connection.proxy = msgspec.structs.replace(connection.proxy, id=f"web-1.{namespace}")  # type: ignore[misc]
        connection.id = f"web-1.{namespace}-1"  # type: ignore[misc]
    for page in ("syncz", "describe"):
        for namespace in ("mugs", "shop"):
            response = await ask(f"/debug/{page}?proxyID=web-1&namespace={namespace}")
            one = response[0] if isinstance(response, list) else response
            assert one["proxy"] == f"web-1.{namespace}"


async def test_push(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/adsz?push=true") == "Pushed to 2 servers\n"
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.pushes == 1


async def test_connections_without_proxies(pages: Sources) -> None:
    async with (
        TestClient(TestServer(application(sources(pages.db)))) as client,
        client.get("/debug/connections") as response,
    ):
        assert await response.json() == {"totalClients": 0}
