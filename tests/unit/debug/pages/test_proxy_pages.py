"""Debug pages about one proxy."""

from __future__ import annotations

import json

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from envoy.admin.v3 import config_dump_pb2
from google.protobuf import json_format

from pilot.config.group_kind import NETWORKING
from pilot.debug.application import application
from pilot.debug.page import Refused, find_connection
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_pages import PROXY, Ask, build_mesh, connection, refusal
from testing.mesh.debug_server import FakeConnection, FakeFleet, FakeWatch, sources
from testing.mesh.listeners import WEB_POD, service
from testing.mesh.objects import at, endpoint_slice, world
from testing.mesh.world import proxy
from tests.unit.debug.pages.test_mesh_pages import CUPS, TEA

ONE_PROXY = ["config_dump", "edsz", "ecdsz", "ndsz", "sidecarz", "authz", "explain"]


@pytest.mark.parametrize("page", ONE_PROXY)
async def test_proxy_id_is_required(client: TestClient[web.Request, web.Application], page: str) -> None:
    assert await refusal(client, f"/debug/{page}") == (400, "You must provide a proxyID in the query string\n")


@pytest.mark.parametrize("page", [*ONE_PROXY, "adsz"])
async def test_unknown_proxy_is_not_found(client: TestClient[web.Request, web.Application], page: str) -> None:
    text = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"
    assert await refusal(client, f"/debug/{page}?proxyID=nobody") == (404, text)


async def test_pod_without_a_connected_proxy_is_named() -> None:
    for text, namespace in (("tea-1.shop", ""), ("tea-1", "shop"), ("tea-1.shop", "shop")):
        with pytest.raises(Refused) as refused:
            find_connection(sources(build_mesh()), text, namespace)
        assert refused.value.text.splitlines()[1] == (
            "Pod shop/tea-1 exists, but no proxy of it is connected; see pilotctl check-inject tea-1.shop"
        )


def named_pages(*rows: tuple[str, str, str]) -> Sources:
    """Return the sources for connections with an ID and the ID and cluster of their proxy. The last is the latest."""
    connections = [
        connection(
            id=id_,
            connected_at=float(number),
            proxy=msgspec.structs.replace(PROXY, id=proxy_id, namespace="shop", metadata={"CLUSTER_ID": cluster}),
        )
        for number, (id_, proxy_id, cluster) in enumerate(rows)
    ]
    return sources(build_mesh(), *connections)


WEBS = [("api-web-1.shop-1", "api-web-1.shop", "c1"), ("web-1.shop-2", "web-1.shop", "c1")]


@pytest.mark.parametrize(
    ("rows", "text", "selected"),
    [
        (WEBS, "web-1.shop", "web-1.shop-2"),
        (WEBS, "web-1.shop-2", "web-1.shop-2"),
        (WEBS, "web-1", "web-1.shop-2"),
        (WEBS, "api", "api-web-1.shop-1"),
        ([*WEBS, ("web-1.shop-7", "web-1.shop", "c1")], "web-1.shop", "web-1.shop-7"),
        ([*WEBS, ("web-1.shop-7", "web-1.shop", "c2")], "web-1.shop-7", "web-1.shop-7"),
    ],
)
def test_exact_name_selects_the_proxy(rows: list[tuple[str, str, str]], text: str, selected: str) -> None:
    assert find_connection(named_pages(*rows), text).id == selected


@pytest.mark.parametrize(
    ("rows", "text", "message"),
    [
        (WEBS, "eb-1", "'eb-1' matches 2 proxies: api-web-1.shop, web-1.shop; specify one of them\n"),
        (
            [*WEBS, ("web-1.shop-7", "web-1.shop", "c2")],
            "web-1.shop",
            "'web-1.shop' matches 2 proxies: web-1.shop-2 (cluster c1), web-1.shop-7 (cluster c2); "
            "specify one of them\n",
        ),
        (
            [(f"web-{n:02}.shop-{n}", f"web-{n:02}.shop", "c1") for n in range(22)],
            "web",
            f"'web' matches 22 proxies: {', '.join(f'web-{n:02}.shop' for n in range(20))} and 2 more; "
            "specify one of them\n",
        ),
    ],
)
async def test_ambiguous_name_is_refused(rows: list[tuple[str, str, str]], text: str, message: str) -> None:
    async with TestClient(TestServer(application(named_pages(*rows)))) as client:
        for page in ("authz", "adsz", "syncz", "telemetryz"):
            assert await refusal(client, f"/debug/{page}?proxyID={text}") == (409, message)


@pytest.mark.parametrize("page", ["authz", "describe", "syncz", "adsz"])
async def test_response_names_the_proxy(client: TestClient[web.Request, web.Application], page: str) -> None:
    async with client.get(f"/debug/{page}?proxyID=cup") as response:
        assert response.headers["X-Proxy-ID"] == "cup-1.mugs"


async def test_config_dump_matches_envoys_schema(ask: Ask) -> None:
    response = await ask("/debug/config_dump?proxyID=tea")
    dump = json_format.ParseDict(response, config_dump_pb2.ConfigDump())
    names = ["Bootstrap", "Clusters", "Listeners", "ScopedRoutes", "Routes", "Secrets", "Ecds"]
    assert [config.type_url for config in dump.configs] == [
        f"type.googleapis.com/envoy.admin.v3.{name}ConfigDump" for name in names
    ]
    clusters_dump = response["configs"][1]
    assert clusters_dump["versionInfo"] == FakeFleet.version
    assert [c["cluster"]["name"] for c in clusters_dump["dynamicActiveClusters"]] == [
        "outbound|80||cups",
        "outbound|80||tea",
    ]


async def test_config_dump_with_endpoints(ask: Ask) -> None:
    response = await ask("/debug/config_dump?proxyID=tea&include_eds")
    json_format.ParseDict(response, config_dump_pb2.ConfigDump())
    assert [c["endpointConfig"]["clusterName"] for c in response["configs"][2]["dynamicEndpointConfigs"]] == [
        "outbound|80||cups",
        "outbound|80||tea",
    ]


async def test_config_dump_is_limited_to_subscriptions(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].subscriptions[BY_SHORT_NAME["eds"]].names = {"outbound|80||tea"}  # type: ignore[misc]
    assert [c["clusterName"] for c in (await ask("/debug/edsz?proxyID=tea"))["configs"]] == ["outbound|80||tea"]
    assert await ask("/debug/ndsz?proxyID=tea") == {}


async def test_config_dump_by_types(ask: Ask) -> None:
    response = await ask("/debug/config_dump?proxyID=tea&types=cds,eds")
    assert [c["@type"].rpartition(".")[2] for c in response["configs"]] == ["Cluster"] * 2 + [
        "ClusterLoadAssignment"
    ] * 2


async def test_unknown_types_are_ignored(ask: Ask) -> None:
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


async def test_explain(ask: Ask) -> None:
    response = await ask("/debug/explain?proxyID=tea&resource=outbound|80||tea")
    assert (response["proxy"], response["resource"]) == ("tea-1.shop", "outbound|80||tea")
    by_type = {part["type"]: part for part in response["explanations"]}
    assert by_type["cds"]["objects"] == [
        {
            "kind": "Service",
            "cluster": "Kubernetes",
            "namespace": "shop",
            "name": "tea",
            "through": ["clusters", "cluster"],
            "via": [],
        },
        {
            "group": NETWORKING,
            "kind": "DestinationRule",
            "namespace": "shop",
            "name": "tea",
            "through": ["clusters", "cluster", "rule_of"],
            "via": [],
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
            "via": [],
        }
    ]


async def test_explain_one_type(ask: Ask) -> None:
    response = await ask("/debug/explain?proxyID=tea&resource=outbound|80||tea&type=eds")
    assert [part["type"] for part in response["explanations"]] == ["eds"]


async def test_explain_suggests_names(client: TestClient[web.Request, web.Application]) -> None:
    status, text = await refusal(client, "/debug/explain?proxyID=tea&resource=outbound|80||te&type=cds")
    assert (status, text) == (
        404,
        "tea-1.shop has no resource 'outbound|80||te': no service has the host te, and no VirtualService names this host "
        "now; did you mean 'outbound|80||tea' or 'outbound|80||cups'?\n",
    )
    assert await refusal(client, "/debug/explain?proxyID=tea") == (
        400,
        "You must provide a resource in the query string\n",
    )


async def test_sidecarz(ask: Ask) -> None:
    rule = {
        "type": {"group": "networking.istio.io", "version": "v1", "kind": "DestinationRule"},
        "uid": "",
        "name": "tea",
        "namespace": "shop",
        "domain": "cluster.local",
        "resourceVersion": "",
        "creationTimestamp": "0001-01-01T00:00:00Z",
        "generation": 0,
        "Spec": {"host": "tea", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1.5s"}}}},
        "Status": {},
        "Extra": None,
    }
    by_host = {"tea.shop.svc.cluster.local": TEA, "cups.shop.svc.cluster.local": CUPS}
    merged = {"exportTo": {}, "from": [{"Namespace": "shop", "Name": "tea"}], "rule": rule}
    assert await ask("/debug/sidecarz?proxyID=tea") == {
        "version": FakeFleet.version,
        "name": "default-sidecar",
        "namespace": "shop",
        "outboundTrafficPolicy": {"mode": "ALLOW_ANY"},
        "sidecar": None,
        "services": [TEA, CUPS],
        "egressListenerServices": [[TEA, CUPS]],
        "servicesByHostname": by_host,
        "destinationRules": {"tea.shop.svc.cluster.local": [merged]},
    }
    router_scope = await ask("/debug/sidecarz?proxyID=cup")
    assert (router_scope["outboundTrafficPolicy"], router_scope["egressListenerServices"]) == (None, [None])


async def test_explain_one_type_and_unknown_names(client: TestClient[web.Request, web.Application], ask: Ask) -> None:
    service = {
        "kind": "Service",
        "cluster": "Kubernetes",
        "namespace": "shop",
        "name": "tea",
        "through": ["clusters", "cluster"],
        "via": [],
    }
    rule = {
        "group": "networking.istio.io",
        "kind": "DestinationRule",
        "namespace": "shop",
        "name": "tea",
        "through": ["clusters", "cluster", "rule_of"],
        "via": [],
    }
    cds = {
        "type": "cds",
        "objects": [service, rule],
        "lists": ["rule_hosts"],
        "searched": [],
        "patches": [],
        "proxy": [],
    }
    path = "/debug/explain?proxyID=tea&resource=outbound|80||"
    assert await ask(f"{path}tea&type=CDS") == {
        "proxy": "tea-1.shop",
        "resource": "outbound|80||tea",
        "explanations": [cds],
    }
    types = ", ".join(BY_SHORT_NAME)
    assert await refusal(client, f"{path}tea&type=x") == (400, f"unknown type 'x'; valid types are {types}\n")
    close = "'outbound|80||tea' or 'outbound|80||cups'"
    assert await refusal(client, f"{path}te") == (
        404,
        "tea-1.shop has no resource 'outbound|80||te': no service has the host te, and no VirtualService names this "
        f"host now; did you mean {close}?\n",
    )
    assert await refusal(client, "/debug/explain?proxyID=tea&resource=zzz") == (
        404,
        "tea-1.shop has no resource 'zzz'; pilotctl proxy-config all tea-1.shop lists the names\n",
    )


async def test_explain_separates_proxy_attributes() -> None:
    async with TestClient(TestServer(application(sources(build_mesh(), connection())))) as client:
        objects = {}
        for name in ("virtualInbound", "inbound|8080||", "outbound|80||tea.shop.svc.cluster.local"):
            async with client.get("/debug/explain", params={"proxyID": "tea", "resource": name}) as response:
                explanation = (await response.json())["explanations"][0]
            objects[name] = [
                {(item["kind"], item["name"]): item["through"] for item in explanation[part]}
                for part in ("objects", "proxy")
            ]
    pod, service = ("Pod", "tea-1"), ("Service", "tea")
    by_targets = ["inbound_facet", "service_targets"]
    listener, listener_proxy = objects["virtualInbound"]
    assert listener == {("MeshConfig", "mesh"): ["inbound_listeners", "inbound_chains"]}
    assert listener_proxy == {pod: by_targets, service: by_targets}
    cluster, cluster_proxy = objects["inbound|8080||"]
    path = ["inbound_clusters", "_inbound_cluster"]
    assert cluster == {service: [*path, "service"], ("DestinationRule", "tea"): [*path, "merged_rule"]}
    assert cluster_proxy == {("MeshConfig", "mesh"): ["inbound_facet", "policy_label_keys"], pod: by_targets}
    assert objects["outbound|80||tea.shop.svc.cluster.local"][1] == {}


def service_pages() -> Sources:
    """Return the sources of a mesh with two services, of which one has a connected proxy."""
    harness = world(
        service("web", "[{name: http, port: 80, targetPort: 8080}]"),
        service("empty", "[{name: http, port: 80, targetPort: 8080}]", "10.96.0.2"),
        WEB_POD,
        endpoint_slice("web", at("10.1.0.1", "web-0"), ports="[{name: http, port: 8080}]"),
    )
    node = proxy("sidecar", "web-0", "a", "10.1.0.1")
    return sources(harness.mesh, FakeConnection("web-0.a-1", harness.connect(node), node))


@pytest.mark.parametrize(
    ("text", "namespace"),
    [
        ("svc/web.a", ""),
        ("service/web.a", ""),
        ("svc/web", "a"),
        ("web.a", ""),
        ("web.a.svc.cluster.local", ""),
        ("svc/web.a.svc.cluster.local", "a"),
    ],
)
def test_service_selects_the_proxy_of_an_endpoint(text: str, namespace: str) -> None:
    assert find_connection(service_pages(), text, namespace).proxy.id == "web-0.a"


@pytest.mark.parametrize(
    ("text", "namespace", "message"),
    [
        ("svc/web", "", "no service 'web'; use NAME.NAMESPACE or the whole host\n"),
        ("svc/wbe", "a", "no service 'wbe' in namespace a\n"),
        (
            "svc/empty.a",
            "",
            "no endpoint of the service empty.a.svc.cluster.local has a connected proxy; pilotctl describe svc/empty.a.svc.cluster.local describes the service itself\n",
        ),
    ],
)
def test_service_without_a_proxy_is_named(text: str, namespace: str, message: str) -> None:
    with pytest.raises(Refused) as refused:
        find_connection(service_pages(), text, namespace)
    assert (refused.value.status, refused.value.text) == (404, message)
