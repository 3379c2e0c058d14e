"""The pages of the monitoring port, over HTTP, on a mesh in memory."""
from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import yarl
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from envoy.admin.v3 import config_dump_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import json_format

from pilot.debug import application as application_module
from pilot.debug import config_dump, explain
from pilot.debug.application import application
from pilot.debug.pages import sections
from pilot.debug.sources import Sources
from pilot.derive import Gather, derived, hub
from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.model.config.object import ObjectKey
from pilot.model.inputs import Mesh
from pilot.model.kind import NETWORKING, GroupKind
from pilot.model.problem import ObjectRef, Problem, Severity
from pilot.model.proxy import NodeType, Proxy
from pilot.settings.process import DebugSettings
from pilot.translate.profile.plan import Group, Plan
from pilot.translate.resource import Resource
from tests.support.debug import FakeConnection, FakeFleet, FakeWatch, sources, with_health
from tests.support.world import parse_objects

OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: tea, namespace: shop, creationTimestamp: "2024-01-02T03:04:05Z", labels: {team: leaves}}
spec: {clusterIP: 10.1.0.1, selector: {app: tea}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cups, namespace: shop, creationTimestamp: "2024-01-03T00:00:00Z"}
spec: {clusterIP: 10.1.0.2, ports: [{name: tcp, port: 90}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: tea-1, namespace: shop, labels: {kubernetes.io/service-name: tea}}
addressType: IPv4
endpoints: [{addresses: [10.2.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: tea-1, namespace: shop}}]
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: v1
kind: Pod
metadata: {name: tea-1, namespace: shop, labels: {app: tea}}
spec: {serviceAccountName: brewer, nodeName: node-1, containers: []}
status: {podIP: 10.2.0.1, podIPs: [{ip: 10.2.0.1}], phase: Running}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tea, namespace: shop}
spec: {host: tea, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1500ms}}}}
"""
NODE = "sidecar~10.2.0.1~tea-1.shop~shop.svc.cluster.local"
PROXY = Proxy(
    type=NodeType.SIDECAR,
    id="tea-1.shop",
    ips=("10.2.0.1",),
    dns_domain="shop.svc.cluster.local",
    namespace="shop",
    metadata={"NAMESPACE": "shop", "LABELS": {"app": "tea"}, "CLUSTER_ID": "Kubernetes"},
    version="1.32.0",
)
SECRET = secret_pb2.Secret(name="default", tls_certificate={"private_key": {"inline_bytes": b"TOP"}, "certificate_chain": {"inline_bytes": b"OPEN"}})

# A small translation of its own, so that these tests depend on the shape of pages and not on that of clusters.


@hub
def rule_hosts(db: Mesh) -> tuple[ObjectKey, ...]:
    return db.destination_rules.all_keys()


@derived
def rule_of(db: Mesh, key: ObjectKey) -> Any:
    return next((row for k in rule_hosts(db) if (row := db.destination_rules.get(k)) is not None and row.spec.host == key.name), None)


@derived
def service_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return db.services.all_keys()


@derived
def cluster(db: Mesh, key: ObjectKey) -> Resource | None:
    rule_of(db, key)
    if db.services.get(key) is None:
        return None
    return Resource.of(BY_SHORT_NAME["cds"], cluster_pb2.Cluster(name=f"outbound|80||{key.name}"))


@derived
def assignment(db: Mesh, key: ObjectKey) -> Resource | None:
    db.services.get(key)
    name = f"outbound|80||{key.name}"
    return Resource.of(BY_SHORT_NAME["eds"], endpoint_pb2.ClusterLoadAssignment(cluster_name=name), name=name)


@derived
def secrets(db: Mesh) -> dict[str, Resource]:
    return {"default": Resource.of(BY_SHORT_NAME["sds"], SECRET)}


clusters: Gather[ObjectKey, [], Resource] = Gather("clusters", service_keys, cluster)
assignments: Gather[ObjectKey, [], Resource] = Gather("assignments", service_keys, assignment)


def small_plan(db: Mesh, node_id: str) -> Plan:
    groups = {"cds": clusters, "eds": assignments, "sds": secrets}
    return Plan({BY_SHORT_NAME[name]: (Group(fn, ()),) for name, fn in groups.items()})


# -- around the pages ------------------------------------------------------------------------------------------------------


def build_mesh() -> Mesh:
    mesh = Mesh()
    config, problems = decode_mesh_config([{"accessLogFile": "/dev/stdout", "connectTimeout": "3s"}])
    assert config is not None
    assert not problems
    decoded = [entry for plain in parse_objects(OBJECTS) for entry in decode_document(plain).entries]
    mesh.commit([(mesh.mesh, "mesh", config), (mesh.proxies, NODE, PROXY), *((getattr(mesh, e.table), e.key, e.object) for e in decoded)])
    return mesh


def connection(**fields: Any) -> FakeConnection:
    return FakeConnection(**{"id": "tea-1.shop-3", "proxy_key": NODE, "proxy": PROXY, **fields})


Ask = Callable[..., Awaitable[Any]]
PROBLEM = Problem(
    code="unknown-host", object=ObjectRef(GroupKind(NETWORKING, "VirtualService"), "shop", "tea"),
    path="spec.hosts[0]", message="no such host", file="a.yaml", line=7,
    severity=Severity.WARNING,
)  # fmt: skip


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setattr(config_dump, "plan", small_plan)
    monkeypatch.setattr(explain, "plan", small_plan)
    mesh, gate = build_mesh(), Proxy(type=NodeType.ROUTER, id="cup-1.mugs", ips=("10.2.0.9",), dns_domain="", namespace="mugs")
    mesh.commit([(mesh.proxies, "router~10.2.0.9~cup-1.mugs~", gate)])
    other = connection(id="cup-1.mugs-4", proxy_key="router~10.2.0.9~cup-1.mugs~", proxy=gate)
    return sources(mesh, connection(), other, problems=[PROBLEM])


@pytest.fixture
async def client(pages: Sources) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async with TestClient(TestServer(application(pages))) as client:
        yield client


@pytest.fixture
def ask(client: TestClient[web.Request, web.Application]) -> Ask:
    async def get(path: str) -> Any:
        async with client.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json() if response.content_type == "application/json" else await response.text()

    return get


async def refusal(client: TestClient[web.Request, web.Application], path: str) -> tuple[int, str]:
    async with client.get(path) as response:
        return response.status, await response.text()


# -- the process -----------------------------------------------------------------------------------------------------------


async def test_version(ask: Ask) -> None:
    assert await ask("/version") == "1.2.3-abc-Clean"


async def test_metrics(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "identity"}) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "pilot_info{" in await response.text()


async def test_metrics_compressed(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "deflate, gzip"}, auto_decompress=False) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"pilot_info{" in gzip.decompress(await response.read())


async def test_the_index_names_every_page_and_proxy(ask: Ask) -> None:
    text = await ask("/debug")
    for page in (page for shown in sections(DebugSettings()).values() for page in shown):
        assert f'{"formaction" if page.of_proxy else "href"}="{page.path}"' in text
    assert "tea-1.shop-3" in text
    assert "/debug/config_dump?proxyID=tea-1.shop-3&amp;pretty=" in text
    assert '<option value="tea-1.shop-3">' in text


async def test_list(ask: Ask) -> None:
    names = await ask("/debug/list")
    assert names == sorted(names)
    assert {"adsz", "adsz?push=true", "syncz", "config_dump", "configz", "registryz", "endpointz", "mesh"} <= set(names)
    assert "list" not in names


async def test_pretty_is_indented_by_four(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/debug/resourcesz?pretty") as response:
        text = await response.text()
    assert text.startswith('[\n    {\n        "group": "",')
    async with client.get("/debug/resourcesz") as response:
        assert "\n" not in await response.text()


async def test_unknown_paths(client: TestClient[web.Request, web.Application]) -> None:
    assert await refusal(client, "/debug/nonsense") == (404, "404 page not found\n")
    assert await refusal(client, "/nonsense") == (404, "404 page not found\n")


@pytest.mark.parametrize(("asked", "clean"), [
    ("//version", "/version"), ("/debug/./syncz", "/debug/syncz"), ("//example.com//a/../?b=c", "/example.com/?b=c"),
])  # fmt: skip
async def test_empty_and_dotted_steps_of_a_path_are_left_out(client: TestClient[web.Request, web.Application], asked: str, clean: str) -> None:
    async with client.session.get(yarl.URL(f"{client.make_url('/')}".rstrip("/") + asked, encoded=True), allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (307, clean)


# -- who may look ----------------------------------------------------------------------------------------------------------


class Asking:
    def __init__(self, remote: str | None) -> None:
        self.remote = remote


@pytest.mark.parametrize(
    ("peer", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("fd00::1", False), (None, False)],
)
def test_who_is_on_this_machine(peer: str | None, here: bool) -> None:
    assert application_module.is_loopback(Asking(peer)) is here  # type: ignore[arg-type]


async def test_others_see_metrics_and_the_bare_index(client: TestClient[web.Request, web.Application], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
    assert await refusal(client, "/debug/adsz") == (401, "")
    status, text = await refusal(client, "/debug")
    assert status == 200
    assert "/debug/adsz" in text
    assert "tea-1.shop" not in text
    assert (await refusal(client, "/metrics"))[0] == 200


async def test_metrics_for_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = sources(build_mesh(), settings=DebugSettings(metrics_loopback_only=True))
    async with TestClient(TestServer(application(closed))) as client:
        assert (await refusal(client, "/metrics"))[0] == 200
        monkeypatch.setattr(application_module, "is_loopback", lambda request: False)
        assert await refusal(client, "/metrics") == (403, "Only requests from localhost are allowed\n")


async def test_debug_can_be_off() -> None:
    async with TestClient(TestServer(application(sources(build_mesh(), settings=DebugSettings(pages=False))))) as client:
        assert (await refusal(client, "/debug"))[0] == 404
        assert (await refusal(client, "/debug/adsz"))[0] == 404
        assert (await refusal(client, "/version"))[0] == 200


async def test_disconnecting_is_off_unless_asked_for(client: TestClient[web.Request, web.Application]) -> None:
    assert (await refusal(client, "/debug/force_disconnect?proxyID=tea"))[0] == 404
    unsafe = sources(build_mesh(), connection(), settings=DebugSettings(unsafe_admin=True))
    async with TestClient(TestServer(application(unsafe))) as other:
        assert await refusal(other, "/debug/force_disconnect?proxyID=tea") == (200, "OK")
        assert "force_disconnect" in (await refusal(other, "/debug/list"))[1]
    assert isinstance(unsafe.fleet, FakeFleet)
    assert unsafe.fleet.ended == ["tea-1.shop-3"]


# -- the fleet -------------------------------------------------------------------------------------------------------------


async def test_adsz(ask: Ask) -> None:
    found = await ask("/debug/adsz")
    assert found["totalClients"] == 2
    assert [client["connectionId"] for client in found["clients"]] == ["cup-1.mugs-4", "tea-1.shop-3"]
    tea = found["clients"][1]
    assert tea["connectedAt"] == "2023-11-14T22:13:20.000000Z"
    assert tea["address"] == "10.0.0.9:4444"
    assert tea["labels"] == {"app": "tea", "topology.istio.io/cluster": "Kubernetes"}
    assert tea["metadata"]["NAMESPACE"] == "shop"
    assert tea["watches"][BY_SHORT_NAME["cds"]] == []  # all of them: it names none


async def test_adsz_names_what_a_proxy_has_of_everything_where_it_is_sent_changes(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].watches[BY_SHORT_NAME["cds"]].known = ["b", "a"]  # type: ignore[misc]
    assert (await ask("/debug/adsz"))["clients"][1]["watches"][BY_SHORT_NAME["cds"]] == ["a", "b"]


async def test_adsz_of_one(ask: Ask) -> None:
    found = await ask("/debug/adsz?proxyID=cup-1")
    assert [client["connectionId"] for client in found["clients"]] == ["cup-1.mugs-4"]


async def test_push(ask: Ask, pages: Sources) -> None:
    assert await ask("/debug/adsz?push=true") == "Pushed to 2 servers\n"
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.pushes == 1


async def test_connections(ask: Ask) -> None:
    found = await ask("/debug/connections")
    assert [sorted(client) for client in found["clients"]] == [["address", "connectedAt", "connectionId"]] * 2


async def test_nobody_is_connected(pages: Sources) -> None:
    async with TestClient(TestServer(application(sources(pages.db)))) as client, client.get("/debug/connections") as response:
        assert await response.json() == {"totalClients": 0}


async def test_syncz(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].watches[BY_SHORT_NAME["lds"]].last_error = "bad listener"  # type: ignore[misc]
    found = await ask("/debug/syncz")
    assert [entry["proxy"] for entry in found] == ["cup-1.mugs", "tea-1.shop"]
    tea = found[1]
    assert (tea["cluster_id"], tea["proxy_type"], tea["istio_version"]) == ("Kubernetes", "sidecar", "1.32.0")
    assert (tea["cluster_sent"], tea["cluster_acked"], tea["endpoint_acked"]) == ("n1", "n1", "n1")
    assert tea["resources"][BY_SHORT_NAME["lds"]] == {
        "sent": "n1", "acked": "n1", "sentTime": "2023-11-14T22:13:20.000000Z", "lastError": "bad listener",
    }  # fmt: skip
    assert [entry["proxy"] for entry in await ask("/debug/syncz?namespace=mugs")] == ["cup-1.mugs"]


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
    assert [config.type_url for config in dump.configs] == [f"type.googleapis.com/envoy.admin.v3.{name}ConfigDump" for name in names]
    clusters_dump = found["configs"][1]
    assert clusters_dump["versionInfo"] == FakeFleet.version
    assert [c["cluster"]["name"] for c in clusters_dump["dynamicActiveClusters"]] == ["outbound|80||cups", "outbound|80||tea"]


async def test_config_dump_with_endpoints(ask: Ask) -> None:
    found = await ask("/debug/config_dump?proxyID=tea&include_eds")
    json_format.ParseDict(found, config_dump_pb2.ConfigDump())
    assert [c["endpointConfig"]["clusterName"] for c in found["configs"][2]["dynamicEndpointConfigs"]] == ["outbound|80||cups", "outbound|80||tea"]


async def test_config_dump_of_what_the_proxy_watches(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].watches[BY_SHORT_NAME["eds"]].names = {"outbound|80||tea"}  # type: ignore[misc]
    assert [c["clusterName"] for c in (await ask("/debug/edsz?proxyID=tea"))["configs"]] == ["outbound|80||tea"]
    assert await ask("/debug/ndsz?proxyID=tea") == {}


async def test_config_dump_by_types(ask: Ask) -> None:
    found = await ask("/debug/config_dump?proxyID=tea&types=cds,eds")
    assert [c["@type"].rpartition(".")[2] for c in found["configs"]] == ["Cluster"] * 2 + ["ClusterLoadAssignment"] * 2


async def test_there_is_nothing_of_an_unknown_type(ask: Ask) -> None:
    assert await ask("/debug/config_dump?proxyID=tea&types=xds") == {}
    assert await ask("/debug/config_dump?proxyID=tea&types=xds,cds") == await ask("/debug/config_dump?proxyID=tea&types=cds")


async def test_private_keys_are_redacted(ask: Ask, pages: Sources) -> None:
    pages.fleet.connections()[0].watches[BY_SHORT_NAME["sds"]] = FakeWatch()  # type: ignore[index]
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
    assert rule["rule"]["Spec"] == {"host": "tea", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "1.5s"}}}}


async def test_explain(ask: Ask) -> None:
    found = await ask("/debug/explain?proxyID=tea&resource=outbound|80||tea")
    assert (found["proxy"], found["resource"]) == ("tea-1.shop", "outbound|80||tea")
    by_type = {part["type"]: part for part in found["explanations"]}
    assert by_type["cds"]["objects"] == [
        {"kind": "Service", "cluster": "Kubernetes", "namespace": "shop", "name": "tea", "through": ["clusters", "cluster"]},
        {"group": NETWORKING, "kind": "DestinationRule", "namespace": "shop", "name": "tea", "through": ["clusters", "cluster", "rule_of"]},
    ]
    assert by_type["cds"]["lists"] == ["rule_hosts"]
    assert by_type["eds"]["objects"] == [
        {"kind": "Service", "cluster": "Kubernetes", "namespace": "shop", "name": "tea", "through": ["assignments", "assignment"]}
    ]


async def test_explain_one_type(ask: Ask) -> None:
    found = await ask("/debug/explain?proxyID=tea&resource=outbound|80||tea&type=eds")
    assert [part["type"] for part in found["explanations"]] == ["eds"]


async def test_explain_suggests_names(client: TestClient[web.Request, web.Application]) -> None:
    status, text = await refusal(client, "/debug/explain?proxyID=tea&resource=outbound|80||te&type=cds")
    assert (status, text) == (404, "tea-1.shop has no resource 'outbound|80||te'; did you mean 'outbound|80||tea' or 'outbound|80||cups'?\n")
    assert await refusal(client, "/debug/explain?proxyID=tea") == (400, "You must provide a resource in the query string\n")


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
    found = await ask("/debug/mesh")
    assert (found["accessLogFile"], found["connectTimeout"], found["rootNamespace"]) == ("/dev/stdout", "3s", "istio-system")


async def test_problemz(ask: Ask) -> None:
    assert await ask("/debug/problemz") == [
        {
            "severity": "warning", "code": "unknown-host", "group": NETWORKING, "kind": "VirtualService", "namespace": "shop", "name": "tea",
            "path": "spec.hosts[0]",
            "file": "a.yaml", "line": 7, "message": "no such host",
        }
    ]  # fmt: skip
    assert await ask("/debug/problemz?namespace=mugs") == []


async def test_registryz(ask: Ask) -> None:
    tea, cups = await ask("/debug/registryz")
    assert tea["hostname"] == "tea.shop.svc.cluster.local"
    assert tea["ports"] == [{"name": "http", "port": 80, "protocol": "HTTP"}]
    assert tea["clusterVIPs"] == {"Addresses": {"Kubernetes": ["10.1.0.1"]}}
    assert (tea["defaultAddress"], tea["creationTime"]) == ("10.1.0.1", "2024-01-02T03:04:05Z")
    attributes = tea["Attributes"]
    assert (attributes["Type"], attributes["ObjectName"], attributes["ClusterExternalAddresses"]) == ("ClusterIP", "", {"Addresses": None})
    assert (attributes["ServiceRegistry"], attributes["Name"], attributes["Namespace"]) == ("Kubernetes", "tea", "shop")
    assert (attributes["Labels"], attributes["LabelSelectors"], attributes["ExportTo"]) == ({"team": "leaves"}, {"app": "tea"}, None)
    assert (tea["Resolution"], tea["MeshExternal"]) == (0, False)
    assert cups["ports"][0]["protocol"] == "TCP"


@pytest.mark.parametrize("page", ["endpointShardz", "endpointz"])
async def test_endpoints(ask: Ask, page: str) -> None:
    found = await ask(f"/debug/{page}")
    tea = found["tea.shop.svc.cluster.local"]["shop"]
    assert tea["ServiceAccounts"] == {"spiffe://cluster.local/ns/shop/sa/brewer": {}}
    (endpoint,) = tea["Shards"]["Kubernetes/Kubernetes"]
    assert (endpoint["Addresses"], endpoint["EndpointPort"], endpoint["ServicePortName"]) == (["10.2.0.1"], 8080, "http")
    assert (endpoint["HealthStatus"], endpoint["NodeName"], endpoint["Namespace"]) == (1, "node-1", "shop")
    assert endpoint["ServiceAccount"] == "spiffe://cluster.local/ns/shop/sa/brewer"
    assert (endpoint["SendUnhealthyEndpoints"], endpoint["Labels"]["topology.istio.io/network"]) == (True, "")
    assert "cups.shop.svc.cluster.local" not in found


async def test_instancesz(ask: Ask, pages: Sources) -> None:
    assert isinstance(pages.fleet, FakeFleet)
    pages.fleet.connected.pop()
    found = await ask("/debug/instancesz")
    assert list(found) == ["tea-1.shop"]
    (target,) = found["tea-1.shop"]
    assert target["Service"]["hostname"] == "tea.shop.svc.cluster.local"
    assert target["Port"] == {"name": "http", "port": 80, "protocol": "HTTP", "TargetPort": 8080}


async def test_networkz(ask: Ask) -> None:
    assert await ask("/debug/networkz") == []


async def test_push_status_is_empty_before_the_mesh_was_looked_at(client: TestClient[web.Request, web.Application]) -> None:
    async with client.get("/debug/push_status") as response:
        assert (response.status, await response.text()) == (200, "")


async def test_push_status(pages: Sources) -> None:
    looked_at = await with_health(pages)
    async with TestClient(TestServer(application(looked_at))) as client, client.get("/debug/push_status") as response:
        text = await response.text()
    assert text.startswith('{\n    "pilot_no_ip"')
    assert json.loads(text) == {
        "pilot_eds_no_instances": {"outbound|90||cups.shop.svc.cluster.local": {}},
        "pilot_no_ip": {"cup-1.mugs": {"proxy": "cup-1.mugs"}},
    }


async def test_pushcontext(ask: Ask) -> None:
    found = await ask("/debug/pushcontext")
    assert found["AuthorizationPolicies"] == (await ask("/debug/authorizationz"))["authorization_policies"]
    assert (found["NetworkGateways"], found["UnresolvedGateways"]) == (None, None)


async def test_pages_of_what_there_is_none_of(ask: Ask) -> None:
    assert await ask("/debug/mcsz") is None
    assert await ask("/debug/ambientz") == {"workloads": None, "services": None, "policies": None}


async def test_cachez(ask: Ask, pages: Sources) -> None:
    assert isinstance(pages.fleet, FakeFleet)
    one, two, other = Resource("one", "t/a", b"x" * 200), Resource("two", "t/a", b"y" * 900), Resource("one", "t/a", b"z" * 100)
    pages.fleet.resources = {"t/a": [{"one": one, "two": two}, {"one": other, "two": two}], "t/b": [{}]}
    assert await ask("/debug/cachez") == {"t/a": ["one", "two", "one", "two"]}
    sizes = await ask("/debug/cachez?sizes=true")
    assert sizes == {"total": "1.2kB", "t/a": "1.2kB"}
    assert pages.fleet.forgets == 0


async def test_clearing_the_cache(client: TestClient[web.Request, web.Application], pages: Sources) -> None:
    async with client.get("/debug/cachez?clear=true") as response:
        assert (response.status, await response.text()) == (200, "Cache cleared\n")
    assert isinstance(pages.fleet, FakeFleet)
    assert pages.fleet.forgets == 1


async def test_krtz_names_derivations_with_how_many_values_they_have(ask: Ask) -> None:
    await ask("/debug/registryz")
    found = {shown["name"]: shown["state"] for shown in await ask("/debug/krtz")}
    assert {state["inputCollection"] for state in found.values()} == {"table", "derived"}
    assert found["service"]["outputs"] == {"count": 2}
    values = found["service"]["inputs"]
    assert "service(tea.shop.svc.cluster.local/shop)" in values
    assert all(value["dependencies"] for value in values.values())


async def test_only_so_many_pages_are_made_at_once(pages: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, go_on = 0, 0, asyncio.Event()

    async def slow(*_: Any) -> application_module.Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        return application_module.Answer(200, "text/plain", b"")

    monkeypatch.setattr(application_module, "AT_ONCE", 2)
    monkeypatch.setattr(application_module, "answer", slow)
    async with TestClient(TestServer(application(pages))) as client:
        asked = [asyncio.create_task(client.get("/debug/connections")) for _ in range(5)]
        async with asyncio.timeout(10):
            while running < 2:
                await asyncio.sleep(0)
            go_on.set()
            assert {(await response).status for response in asked} == {200}
    assert most == 2
