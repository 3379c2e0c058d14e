"""The pages of the monitoring port that tell of one proxy."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from envoy.admin.v3 import config_dump_pb2
from google.protobuf import json_format

from pilot.config.group_kind import NETWORKING
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_pages import Ask, refusal
from testing.mesh.debug_server import FakeFleet, FakeWatch

# -- one proxy -------------------------------------------------------------------------------------------------------------

ONE_PROXY = ["config_dump", "edsz", "ecdsz", "ndsz", "sidecarz", "authz", "explain"]


@pytest.mark.parametrize("page", ONE_PROXY)
async def test_a_proxy_must_be_named(client: TestClient[web.Request, web.Application], page: str) -> None:
    assert await refusal(client, f"/debug/{page}") == (400, "You must provide a proxyID in the query string\n")


@pytest.mark.parametrize("page", [*ONE_PROXY, "adsz"])
async def test_the_proxy_must_be_connected(client: TestClient[web.Request, web.Application], page: str) -> None:
    text = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"
    assert await refusal(client, f"/debug/{page}?proxyID=nobody") == (404, text)


async def test_config_dump_is_one_of_envoy(ask: Ask) -> None:
    found = await ask("/debug/config_dump?proxyID=tea")
    dump = json_format.ParseDict(found, config_dump_pb2.ConfigDump())
    names = ["Bootstrap", "Clusters", "Listeners", "ScopedRoutes", "Routes", "Secrets", "Ecds"]
    assert [config.type_url for config in dump.configs] == [
        f"type.googleapis.com/envoy.admin.v3.{name}ConfigDump" for name in names
    ]
    clusters_dump = found["configs"][1]
    assert clusters_dump["versionInfo"] == FakeFleet.version
    assert [c["cluster"]["name"] for c in clusters_dump["dynamicActiveClusters"]] == [
        "outbound|80||cups",
        "outbound|80||tea",
    ]


async def test_config_dump_with_endpoints(ask: Ask) -> None:
    found = await ask("/debug/config_dump?proxyID=tea&include_eds")
    json_format.ParseDict(found, config_dump_pb2.ConfigDump())
    assert [c["endpointConfig"]["clusterName"] for c in found["configs"][2]["dynamicEndpointConfigs"]] == [
        "outbound|80||cups",
        "outbound|80||tea",
    ]


async def test_config_dump_of_what_the_proxy_watches(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["eds"]].names = {"outbound|80||tea"}  # type: ignore[misc]
    assert [c["clusterName"] for c in (await ask("/debug/edsz?proxyID=tea"))["configs"]] == ["outbound|80||tea"]
    assert await ask("/debug/ndsz?proxyID=tea") == {}


async def test_config_dump_by_types(ask: Ask) -> None:
    found = await ask("/debug/config_dump?proxyID=tea&types=cds,eds")
    assert [c["@type"].rpartition(".")[2] for c in found["configs"]] == ["Cluster"] * 2 + ["ClusterLoadAssignment"] * 2


async def test_there_is_nothing_of_an_unknown_type(ask: Ask) -> None:
    assert await ask("/debug/config_dump?proxyID=tea&types=xds") == {}
    assert await ask("/debug/config_dump?proxyID=tea&types=xds,cds") == await ask(
        "/debug/config_dump?proxyID=tea&types=cds"
    )


async def test_private_keys_are_redacted(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["sds"]] = FakeWatch()  # type: ignore[index]
    for query in ("proxyID=tea", "proxyID=tea&types=sds"):
        text = json.dumps(await ask(f"/debug/config_dump?{query}"))
        assert '"W3JlZGFjdGVkXQ=="' in text
        assert "VE9Q" not in text
        assert "T1BFTg==" in text


async def test_sidecarz(ask: Ask) -> None:
    found = await ask("/debug/sidecarz?proxyID=tea")
    assert (found["name"], found["namespace"], found["version"]) == ("default-sidecar", "shop", FakeFleet.version)
    assert found["outboundTrafficPolicy"] == {"mode": "ALLOW_ANY"}
    hosts = ["tea.shop.svc.cluster.local", "cups.shop.svc.cluster.local"]
    assert [s["hostname"] for s in found["services"]] == hosts
    assert [[s["hostname"] for s in listener] for listener in found["egressListenerServices"]] == [hosts]
    assert sorted(found["servicesByHostname"]) == sorted(hosts)
    (rule,) = found["destinationRules"]["tea.shop.svc.cluster.local"]
    assert (rule["from"], rule["exportTo"]) == ([{"Namespace": "shop", "Name": "tea"}], {})
    assert rule["rule"]["type"] == {"group": NETWORKING, "version": "v1", "kind": "DestinationRule"}
    assert rule["rule"]["Spec"] == {
        "host": "tea",
        "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1.5s"}}},
    }


async def test_explain(ask: Ask) -> None:
    found = await ask("/debug/explain?proxyID=tea&resource=outbound|80||tea")
    assert (found["proxy"], found["resource"]) == ("tea-1.shop", "outbound|80||tea")
    by_type = {part["type"]: part for part in found["explanations"]}
    assert by_type["cds"]["objects"] == [
        {
            "kind": "Service",
            "cluster": "Kubernetes",
            "namespace": "shop",
            "name": "tea",
            "through": ["clusters", "cluster"],
        },
        {
            "group": NETWORKING,
            "kind": "DestinationRule",
            "namespace": "shop",
            "name": "tea",
            "through": ["clusters", "cluster", "rule_of"],
        },
    ]
    assert by_type["cds"]["lists"] == ["rule_hosts"]
    assert by_type["eds"]["objects"] == [
        {
            "kind": "Service",
            "cluster": "Kubernetes",
            "namespace": "shop",
            "name": "tea",
            "through": ["assignments", "assignment"],
        }
    ]


async def test_explain_one_type(ask: Ask) -> None:
    found = await ask("/debug/explain?proxyID=tea&resource=outbound|80||tea&type=eds")
    assert [part["type"] for part in found["explanations"]] == ["eds"]


async def test_explain_suggests_names(client: TestClient[web.Request, web.Application]) -> None:
    status, text = await refusal(client, "/debug/explain?proxyID=tea&resource=outbound|80||te&type=cds")
    assert (status, text) == (
        404,
        "tea-1.shop has no resource 'outbound|80||te'; did you mean 'outbound|80||tea' or 'outbound|80||cups'?\n",
    )
    assert await refusal(client, "/debug/explain?proxyID=tea") == (
        400,
        "You must provide a resource in the query string\n",
    )
