"""Multiple clusters: merged services, per-cluster proxies, networks and endpoints."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import aiohttp
import msgspec
import pytest

from pilot.bootstrap.control_plane import ControlPlane
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.object import ObjectKey, RegistryKey
from pilot.ingest.decode import DocumentOrigin, decode_document
from pilot.ingest.files.config_folders import ConfigFolder, parse_config_folders
from pilot.lib.flags import FlagError
from pilot.lib.labels import NETWORK
from pilot.lib.xds_types import ENDPOINT, LISTENER, ROUTE
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.endpoints import endpoints, service_accounts
from pilot.mesh.registry.networks import NetworkGateway, find_network, network_gateways
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import refs_by_hostname, service, service_refs
from pilot.mesh.registry.workloads import pod_of, proxy_labels, proxy_locality
from pilot.mesh.tables.clusters import service_clusters
from pilot.settings.parse import load
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import Rows, World, proxy, rows_of
from testing.processes.process import free_port

ALPHA = ServiceRef("alpha.a.svc.cluster.local", "a")
PORTS = "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]"


def cluster_of_alpha(number: int, ip: str, spec: str = "", **metadata: Any) -> list[Plain]:
    """Objects of a cluster: the alpha Service with a distinct address, one Pod, one Node."""
    spec = (
        spec
        or f"{{clusterIP: 10.96.{number}.1, clusterIPs: [10.96.{number}.1], selector: {{app: alpha}}, ports: {PORTS}}}"
    )
    return [
        make("Service", "alpha", spec, **metadata),
        endpoint_slice("alpha", at(ip, "alpha-0"), ports="[{name: http, port: 8080}, {name: tcp, port: 9000}]"),
        pod("alpha-0", ip, spec=f"{{nodeName: n, serviceAccountName: sa-{number}}}", labels="{app: alpha}"),
        make("Node", "n", labels=f"{{topology.kubernetes.io/region: r{number}}}"),
    ]


HOME, WEST = cluster_of_alpha(1, "10.1.0.1"), cluster_of_alpha(2, "10.2.0.1")


def mesh(home: list[Plain], west: list[Plain], **environ: str) -> World:
    harness = World(environ=environ)
    rows: Rows = rows_of(home) | rows_of(west, "west")
    harness.set(dict(rows))
    return harness


# -- services and endpoints --------------------------------------------------------------------------------------------------


def test_services_with_the_same_name_are_merged_across_clusters() -> None:
    harness = mesh(HOME, WEST).mesh
    merged = service(harness, ALPHA)
    assert merged is not None
    assert service_refs(harness) == refs_by_hostname(harness, ALPHA.hostname) == (ALPHA,)
    assert merged.addresses == ("10.96.1.1",)
    assert [merged.addresses_in(cluster) for cluster in ("Kubernetes", "west", "nowhere", "")] == [
        ("10.96.1.1",),
        ("10.96.2.1",),
        ("10.96.1.1",),
        ("10.96.1.1",),
    ]


def test_merged_service_follows_the_local_cluster_then_the_first_by_name() -> None:
    ports = "[{name: other, port: 81}]"
    accounts = "{alpha.istio.io/canonical-serviceaccounts: them}"
    west = cluster_of_alpha(2, "10.2.0.1", f"{{clusterIP: 10.96.2.1, ports: {ports}}}", annotations=accounts)
    harness = mesh(HOME, west)
    local = service(harness.mesh, ALPHA)
    assert local is not None
    assert [p.number for p in local.ports] == [80, 9000]
    assert "them" in local.service_accounts
    harness.set(dict.fromkeys(rows_of(HOME), None))
    western = service(harness.mesh, ALPHA)
    assert western is not None
    assert ([p.number for p in western.ports], western.addresses) == ([81], ("10.96.2.1",))
    harness.set(dict(rows_of(WEST, "east")))
    assert service_clusters(harness.mesh) == ("east", "west")
    eastern = service(harness.mesh, ALPHA)
    assert eastern is not None
    assert [p.number for p in eastern.ports] == [80, 9000]
    harness.set(dict.fromkeys([*rows_of(west, "west"), *rows_of(WEST, "east")], None))
    assert service(harness.mesh, ALPHA) is None
    assert service_refs(harness.mesh) == ()


def test_merged_service_has_endpoints_of_all_clusters() -> None:
    harness = mesh(HOME, WEST).mesh
    rows = endpoints(harness, ALPHA, 80)
    assert [(e.addresses, e.cluster_id, e.locality.region) for e in rows] == [
        (("10.1.0.1",), "Kubernetes", "r1"),
        (("10.2.0.1",), "west", "r2"),
    ]
    assert [dict(e.labels)["topology.istio.io/cluster"] for e in rows] == ["Kubernetes", "west"]
    assert service_accounts(harness, ALPHA) == (
        "spiffe://cluster.local/ns/a/sa/sa-1",
        "spiffe://cluster.local/ns/a/sa/sa-2",
    )


def test_clusters_may_use_the_same_addresses() -> None:
    harness = mesh(HOME, cluster_of_alpha(2, "10.1.0.1")).mesh
    assert [(e.addresses, e.cluster_id) for e in endpoints(harness, ALPHA, 80)] == [
        (("10.1.0.1",), "Kubernetes"),
        (("10.1.0.1",), "west"),
    ]


def test_only_service_entries_select_workload_entries_of_all_clusters() -> None:
    vm = make("WorkloadEntry", "vm", "{address: 10.9.0.1, labels: {app: alpha}}")
    entry = make(
        "ServiceEntry",
        "all",
        "{hosts: [all.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: alpha}}}",
    )
    harness = mesh([*HOME, entry], [vm]).mesh
    assert [e.addresses[0] for e in endpoints(harness, ALPHA, 80)] == ["10.1.0.1"]
    everywhere = endpoints(harness, ServiceRef("all.com", "a"), 80)
    assert [(e.addresses[0], e.cluster_id) for e in everywhere] == [("10.1.0.1", "Kubernetes"), ("10.9.0.1", "west")]


# -- proxies -----------------------------------------------------------------------------------------------------------------


def test_proxy_maps_to_the_pod_of_its_cluster() -> None:
    harness = mesh(HOME, cluster_of_alpha(2, "10.1.0.1"))
    ids = [
        harness.connect(proxy("sidecar", "alpha-0", "a", ip, CLUSTER_ID=c))
        for ip, c in (("10.1.0.1", "west"), ("10.1.0.2", "nowhere"))
    ]
    assert [pod_of(harness.mesh, i) for i in ids] == [RegistryKey("west", "a", "alpha-0"), None]
    assert [proxy_locality(harness.mesh, i).region for i in ids] == ["r2", ""]
    assert proxy_labels(harness.mesh, ids[0])["topology.istio.io/cluster"] == "west"
    assert {t.ref for t in service_targets(harness.mesh, ids[0])} == {ALPHA}
    assert service_targets(harness.mesh, ids[1]) == ()


def test_service_targets_use_ports_of_the_proxy_cluster() -> None:
    west = cluster_of_alpha(
        2, "10.2.0.1", "{clusterIP: 10.96.2.1, selector: {app: alpha}, ports: [{name: odd, port: 7, targetPort: 70}]}"
    )
    harness = mesh(HOME, west)
    node_id = harness.connect(proxy("sidecar", "alpha-0", "a", "10.2.0.1", CLUSTER_ID="west"))
    assert [(t.port.number, t.target_port) for t in service_targets(harness.mesh, node_id)] == [(7, 70)]


@pytest.mark.parametrize(
    ("cluster", "address"), [("Kubernetes", "10.96.1.1"), ("west", "10.96.2.1"), ("nowhere", "10.96.1.1")]
)
def test_clients_use_the_service_address_of_their_cluster(cluster: str, address: str) -> None:
    harness = mesh(HOME, WEST)
    resources = harness.resources(harness.connect(proxy("sidecar", "web-0", "a", "10.1.0.9", CLUSTER_ID=cluster)))
    assert [name for name in resources[LISTENER] if name.endswith("_9000")] == [f"{address}_9000"]
    routes = resources[ROUTE]["80"].any
    assert (address.encode() in routes, b"10.96" in routes) == (True, True)
    assert all(other.encode() not in routes for other in {"10.96.1.1", "10.96.2.1"} - {address})
    assert not harness.failures


def test_cluster_local_service_has_only_endpoints_of_the_client_cluster() -> None:
    harness = World("{serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.a.svc.cluster.local']}]}")
    harness.set(dict(rows_of(HOME) | rows_of(WEST, "west")))
    for cluster, ip, other in (("Kubernetes", b"10.1.0.1", b"10.2.0.1"), ("west", b"10.2.0.1", b"10.1.0.1")):
        resources = harness.resources(harness.connect(proxy("sidecar", "web-0", "a", "10.1.0.9", CLUSTER_ID=cluster)))
        load_assignment = resources[ENDPOINT][f"outbound|80||{ALPHA.hostname}"].any
        assert (ip in load_assignment, other in load_assignment) == (True, False)


# -- networks ----------------------------------------------------------------------------------------------------------------


def test_network_of_a_cluster_by_namespace_label_or_mesh_networks() -> None:
    harness = mesh([make("Namespace", "istio-system", labels=f"{{{NETWORK}: home-net}}")], [])
    networks = {
        "west-net": {"endpoints": [{"fromRegistry": "west"}]},
        "wide": {"endpoints": [{"fromCidr": "10.0.0.0/8"}]},
    }
    harness.mesh.commit([(harness.mesh.mesh, "networks", msgspec.convert({"networks": networks}, MeshNetworks))])
    assert [find_network(harness.mesh, c, "10.1.0.1", {}) for c in ("Kubernetes", "west", "other")] == [
        "home-net",
        "west-net",
        "wide",
    ]


def gateway(ip: str, network: str = "") -> Plain:
    labels = f"{{{NETWORK}: {network}}}" if network else "{}"
    spec = f"{{clusterIP: 10.96.0.9, externalIPs: [{ip}], ports: [{{name: tls, port: 15443}}]}}"
    return make("Service", "eastwest", spec, "istio-system", labels=labels)


def test_network_gateways_of_each_cluster() -> None:
    harness = mesh([gateway("8.8.8.8", "one")], [gateway("9.9.9.9", "two")]).mesh
    assert network_gateways(harness).gateways == (
        NetworkGateway("8.8.8.8", 15443, "one", "Kubernetes"),
        NetworkGateway("9.9.9.9", 15443, "two", "west"),
    )
    by_name = mesh([gateway("8.8.8.8")], [gateway("9.9.9.9")]).mesh
    name = "eastwest.istio-system.svc.cluster.local"
    networks = {
        "two": {"endpoints": [{"fromRegistry": "west"}], "gateways": [{"registryServiceName": name, "port": 15443}]}
    }
    by_name.commit([(by_name.mesh, "networks", msgspec.convert({"networks": networks}, MeshNetworks))])
    assert network_gateways(by_name).gateways == (NetworkGateway("9.9.9.9", 15443, "two", "west"),)


def test_remote_network_endpoints_use_their_cluster_gateway() -> None:
    system = [make("Namespace", "istio-system", labels=f"{{{NETWORK}: {n}}}") for n in ("one", "two")]
    meshed = pod("alpha-0", "10.2.0.1", labels="{app: alpha, security.istio.io/tlsMode: istio}")
    harness = mesh([*HOME, system[0]], [*WEST, meshed, system[1], gateway("9.9.9.9", "two")])
    resources = {}
    for cluster, network in (("Kubernetes", "one"), ("west", "two")):
        client = proxy("sidecar", "web-0", "a", "10.1.0.9", CLUSTER_ID=cluster, NETWORK=network)
        resources[cluster] = harness.resources(harness.connect(client))[ENDPOINT][f"outbound|80||{ALPHA.hostname}"].any
    assert (
        b"10.1.0.1" in resources["Kubernetes"],
        b"10.2.0.1" in resources["Kubernetes"],
        b"9.9.9.9" in resources["Kubernetes"],
    ) == (
        True,
        False,
        True,
    )
    assert (b"10.2.0.1" in resources["west"], b"9.9.9.9" in resources["west"]) == (True, False)


# -- sources ------------------------------------------------------------------------------------------------------------------


def test_remote_cluster_configuration_is_ignored_and_reported() -> None:
    west = DocumentOrigin("west", own=False)
    rule = decode_document(make("DestinationRule", "r", "{host: x}"), origin=west)
    assert rule.entries == ()
    assert [(p.code, p.path) for p in rule.problems] == [("remote-configuration", "kind")]
    assert "cluster west" in rule.problems[0].message
    assert [e.key for e in decode_document(WEST[0], origin=west).entries] == [RegistryKey("west", "a", "alpha")]
    assert [e.key for e in decode_document(make("DestinationRule", "r", "{host: x}")).entries] == [ObjectKey("a", "r")]


def test_parse_config_folders(tmp_path: pathlib.Path) -> None:
    assert parse_config_folders(["/a", "west=/b", "./c=d", "Kubernetes=/e"], "Kubernetes") == (
        ConfigFolder("/a", "Kubernetes"),
        ConfigFolder("/b", "west"),
        ConfigFolder("./c=d", "Kubernetes"),
        ConfigFolder("/e", "Kubernetes"),
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "--configDir is required"),
        (["west=/b"], "no folder belongs to the local cluster home"),
        (["/a", "=/b"], "'=/b' is neither FOLDER nor CLUSTER=FOLDER"),
        (["/a", "west="], "'west=' is neither"),
        (["/a", "we st=/b"], "'we st=/b' is neither"),
        (["/a", "west=/a"], "the same folder or nested"),
        (["/a", "west=/a/../a"], "the same folder or nested"),
        (["/a", "west=/a/b"], "the same folder or nested"),
        (["/a/b", "/a"], "the same folder or nested"),
    ],
)
def test_invalid_config_folders_are_rejected(texts: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        parse_config_folders(texts, "home")


async def fetch(address: str, page: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/debug/{page}") as response:
        assert response.status == 200
        return json.loads(await response.text())


async def test_control_plane_with_folders_of_two_clusters(tmp_path: pathlib.Path) -> None:
    for name, objects in (("home", HOME), ("west", [*WEST, make("DestinationRule", "r", "{host: x}")])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    addresses = [
        f"--{flag}=127.0.0.1:{free_port()}"
        for flag in ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
    ]
    folders = ["--clusterID", "home", "--configDir", str(tmp_path / "home"), "--configDir", f"west={tmp_path / 'west'}"]
    plane = ControlPlane(load([*addresses, *folders, "--ctrlz_port=0"], {}).settings)
    running = asyncio.create_task(plane.run())
    async with asyncio.timeout(30):
        while not plane.ready:
            await asyncio.sleep(0.01)
    at_http = str(plane.addresses.http)
    assert [c["id"] for c in await fetch(at_http, "clusterz")] == ["home", "west"]
    (alpha,) = await fetch(at_http, "registryz")
    assert alpha["clusterVIPs"] == {"Addresses": {"home": ["10.96.1.1"], "west": ["10.96.2.1"]}}
    shards = (await fetch(at_http, "endpointShardz"))[ALPHA.hostname]["a"]["Shards"]
    addresses_by_shard = {name: {e["Addresses"][0] for e in rows} for name, rows in shards.items()}
    assert addresses_by_shard == {"Kubernetes/home": {"10.1.0.1"}, "Kubernetes/west": {"10.2.0.1"}}
    assert [(p["code"], p["name"]) for p in await fetch(at_http, "problemz")] == [("remote-configuration", "r")]
    plane.end()
    async with asyncio.timeout(30):
        await running
