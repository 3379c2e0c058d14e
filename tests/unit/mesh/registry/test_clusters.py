"""Several clusters: one service over all of them, each proxy by its own cluster, networks and endpoints by theirs."""

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
from pilot.ingest.config_folders import ConfigFolder, parse_config_folders
from pilot.ingest.decode import DocumentOrigin, decode_document
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
    """What runs in a cluster: alpha with an address of its own, one Pod, on one node."""
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
    made = World(environ=environ)
    rows: Rows = rows_of(home) | rows_of(west, "west")
    made.set(dict(rows))
    return made


# -- services and endpoints --------------------------------------------------------------------------------------------------


def test_services_of_one_name_are_one_service_with_the_addresses_of_each_cluster() -> None:
    made = mesh(HOME, WEST).mesh
    found = service(made, ALPHA)
    assert found is not None
    assert service_refs(made) == refs_by_hostname(made, ALPHA.hostname) == (ALPHA,)
    assert found.addresses == ("10.96.1.1",)
    assert [found.addresses_in(cluster) for cluster in ("Kubernetes", "west", "nowhere", "")] == [
        ("10.96.1.1",),
        ("10.96.2.1",),
        ("10.96.1.1",),
        ("10.96.1.1",),
    ]


def test_a_service_is_as_the_own_cluster_has_it_then_as_the_first_by_name() -> None:
    ports = "[{name: other, port: 81}]"
    accounts = "{alpha.istio.io/canonical-serviceaccounts: them}"
    west = cluster_of_alpha(2, "10.2.0.1", f"{{clusterIP: 10.96.2.1, ports: {ports}}}", annotations=accounts)
    made = mesh(HOME, west)
    found = service(made.mesh, ALPHA)
    assert found is not None
    assert [p.number for p in found.ports] == [80, 9000]
    assert "them" in found.service_accounts
    made.set(dict.fromkeys(rows_of(HOME), None))
    alone = service(made.mesh, ALPHA)
    assert alone is not None
    assert ([p.number for p in alone.ports], alone.addresses) == ([81], ("10.96.2.1",))
    made.set(dict(rows_of(WEST, "east")))
    assert service_clusters(made.mesh) == ("east", "west")
    eastern = service(made.mesh, ALPHA)
    assert eastern is not None
    assert [p.number for p in eastern.ports] == [80, 9000]
    made.set(dict.fromkeys([*rows_of(west, "west"), *rows_of(WEST, "east")], None))
    assert service(made.mesh, ALPHA) is None
    assert service_refs(made.mesh) == ()


def test_endpoints_of_all_clusters_serve_each_at_its_place() -> None:
    made = mesh(HOME, WEST).mesh
    found = endpoints(made, ALPHA, 80)
    assert [(e.addresses, e.cluster_id, e.locality.region) for e in found] == [
        (("10.1.0.1",), "Kubernetes", "r1"),
        (("10.2.0.1",), "west", "r2"),
    ]
    assert [dict(e.labels)["topology.istio.io/cluster"] for e in found] == ["Kubernetes", "west"]
    assert service_accounts(made, ALPHA) == (
        "spiffe://cluster.local/ns/a/sa/sa-1",
        "spiffe://cluster.local/ns/a/sa/sa-2",
    )


def test_clusters_may_use_the_same_addresses() -> None:
    made = mesh(HOME, cluster_of_alpha(2, "10.1.0.1")).mesh
    assert [(e.addresses, e.cluster_id) for e in endpoints(made, ALPHA, 80)] == [
        (("10.1.0.1",), "Kubernetes"),
        (("10.1.0.1",), "west"),
    ]


def test_a_service_selects_workload_entries_of_its_own_cluster_and_a_service_entry_those_of_all() -> None:
    vm = make("WorkloadEntry", "vm", "{address: 10.9.0.1, labels: {app: alpha}}")
    entry = make(
        "ServiceEntry",
        "all",
        "{hosts: [all.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: alpha}}}",
    )
    made = mesh([*HOME, entry], [vm]).mesh
    assert [e.addresses[0] for e in endpoints(made, ALPHA, 80)] == ["10.1.0.1"]
    everywhere = endpoints(made, ServiceRef("all.com", "a"), 80)
    assert [(e.addresses[0], e.cluster_id) for e in everywhere] == [("10.1.0.1", "Kubernetes"), ("10.9.0.1", "west")]


# -- proxies -----------------------------------------------------------------------------------------------------------------


def test_a_proxy_is_the_pod_of_its_own_cluster() -> None:
    made = mesh(HOME, cluster_of_alpha(2, "10.1.0.1"))
    ids = [
        made.connect(proxy("sidecar", "alpha-0", "a", ip, CLUSTER_ID=c))
        for ip, c in (("10.1.0.1", "west"), ("10.1.0.2", "nowhere"))
    ]
    assert [pod_of(made.mesh, i) for i in ids] == [RegistryKey("west", "a", "alpha-0"), None]
    assert [proxy_locality(made.mesh, i).region for i in ids] == ["r2", ""]
    assert proxy_labels(made.mesh, ids[0])["topology.istio.io/cluster"] == "west"
    assert {t.ref for t in service_targets(made.mesh, ids[0])} == {ALPHA}
    assert service_targets(made.mesh, ids[1]) == ()


def test_the_ports_of_a_proxy_are_those_of_its_own_cluster() -> None:
    west = cluster_of_alpha(
        2, "10.2.0.1", "{clusterIP: 10.96.2.1, selector: {app: alpha}, ports: [{name: odd, port: 7, targetPort: 70}]}"
    )
    made = mesh(HOME, west)
    node_id = made.connect(proxy("sidecar", "alpha-0", "a", "10.2.0.1", CLUSTER_ID="west"))
    assert [(t.port.number, t.target_port) for t in service_targets(made.mesh, node_id)] == [(7, 70)]


@pytest.mark.parametrize(
    ("cluster", "address"), [("Kubernetes", "10.96.1.1"), ("west", "10.96.2.1"), ("nowhere", "10.96.1.1")]
)
def test_clients_use_the_addresses_of_their_own_cluster(cluster: str, address: str) -> None:
    made = mesh(HOME, WEST)
    found = made.resources(made.connect(proxy("sidecar", "web-0", "a", "10.1.0.9", CLUSTER_ID=cluster)))
    assert [name for name in found[LISTENER] if name.endswith("_9000")] == [f"{address}_9000"]
    routes = found[ROUTE]["80"].any
    assert (address.encode() in routes, b"10.96" in routes) == (True, True)
    assert all(other.encode() not in routes for other in {"10.96.1.1", "10.96.2.1"} - {address})
    assert not made.failures


def test_a_service_local_to_its_cluster_has_only_endpoints_of_the_client_s_cluster() -> None:
    made = World("{serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.a.svc.cluster.local']}]}")
    made.set(dict(rows_of(HOME) | rows_of(WEST, "west")))
    for cluster, ip, other in (("Kubernetes", b"10.1.0.1", b"10.2.0.1"), ("west", b"10.2.0.1", b"10.1.0.1")):
        found = made.resources(made.connect(proxy("sidecar", "web-0", "a", "10.1.0.9", CLUSTER_ID=cluster)))
        sent = found[ENDPOINT][f"outbound|80||{ALPHA.hostname}"].any
        assert (ip in sent, other in sent) == (True, False)


# -- networks ----------------------------------------------------------------------------------------------------------------


def test_a_cluster_is_in_the_network_that_its_control_plane_namespace_says_or_that_names_it() -> None:
    made = mesh([make("Namespace", "istio-system", labels=f"{{{NETWORK}: home-net}}")], [])
    networks = {
        "west-net": {"endpoints": [{"fromRegistry": "west"}]},
        "wide": {"endpoints": [{"fromCidr": "10.0.0.0/8"}]},
    }
    made.mesh.commit([(made.mesh.mesh, "networks", msgspec.convert({"networks": networks}, MeshNetworks))])
    assert [find_network(made.mesh, c, "10.1.0.1", {}) for c in ("Kubernetes", "west", "other")] == [
        "home-net",
        "west-net",
        "wide",
    ]


def gateway(ip: str, network: str = "") -> Plain:
    labels = f"{{{NETWORK}: {network}}}" if network else "{}"
    spec = f"{{clusterIP: 10.96.0.9, externalIPs: [{ip}], ports: [{{name: tls, port: 15443}}]}}"
    return make("Service", "eastwest", spec, "istio-system", labels=labels)


def test_gateways_are_those_of_each_cluster() -> None:
    made = mesh([gateway("8.8.8.8", "one")], [gateway("9.9.9.9", "two")]).mesh
    assert network_gateways(made).gateways == (
        NetworkGateway("8.8.8.8", 15443, "one", "Kubernetes"),
        NetworkGateway("9.9.9.9", 15443, "two", "west"),
    )
    named = mesh([gateway("8.8.8.8")], [gateway("9.9.9.9")]).mesh
    name = "eastwest.istio-system.svc.cluster.local"
    networks = {
        "two": {"endpoints": [{"fromRegistry": "west"}], "gateways": [{"registryServiceName": name, "port": 15443}]}
    }
    named.commit([(named.mesh, "networks", msgspec.convert({"networks": networks}, MeshNetworks))])
    assert network_gateways(named).gateways == (NetworkGateway("9.9.9.9", 15443, "two", "west"),)


def test_endpoints_of_another_network_are_behind_the_gateway_of_their_cluster() -> None:
    system = [make("Namespace", "istio-system", labels=f"{{{NETWORK}: {n}}}") for n in ("one", "two")]
    meshed = pod("alpha-0", "10.2.0.1", labels="{app: alpha, security.istio.io/tlsMode: istio}")
    made = mesh([*HOME, system[0]], [*WEST, meshed, system[1], gateway("9.9.9.9", "two")])
    sent = {}
    for cluster, network in (("Kubernetes", "one"), ("west", "two")):
        client = proxy("sidecar", "web-0", "a", "10.1.0.9", CLUSTER_ID=cluster, NETWORK=network)
        sent[cluster] = made.resources(made.connect(client))[ENDPOINT][f"outbound|80||{ALPHA.hostname}"].any
    assert (b"10.1.0.1" in sent["Kubernetes"], b"10.2.0.1" in sent["Kubernetes"], b"9.9.9.9" in sent["Kubernetes"]) == (
        True,
        False,
        True,
    )
    assert (b"10.2.0.1" in sent["west"], b"9.9.9.9" in sent["west"]) == (True, False)


# -- what is read ------------------------------------------------------------------------------------------------------------


def test_configuration_of_another_cluster_has_no_effect_and_says_so() -> None:
    west = DocumentOrigin("west", own=False)
    rule = decode_document(make("DestinationRule", "r", "{host: x}"), origin=west)
    assert rule.entries == ()
    assert [(p.code, p.path) for p in rule.problems] == [("remote-configuration", "kind")]
    assert "cluster west" in rule.problems[0].message
    assert [e.key for e in decode_document(WEST[0], origin=west).entries] == [RegistryKey("west", "a", "alpha")]
    assert [e.key for e in decode_document(make("DestinationRule", "r", "{host: x}")).entries] == [ObjectKey("a", "r")]


def test_folders_of_clusters(tmp_path: pathlib.Path) -> None:
    assert parse_config_folders(["/a", "west=/b", "./c=d", "Kubernetes=/e"], "Kubernetes") == (
        ConfigFolder("/a", "Kubernetes"),
        ConfigFolder("/b", "west"),
        ConfigFolder("./c=d", "Kubernetes"),
        ConfigFolder("/e", "Kubernetes"),
    )


@pytest.mark.parametrize(
    ("texts", "says"),
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
def test_folders_that_make_no_sense_are_refused(texts: list[str], says: str) -> None:
    with pytest.raises(FlagError, match=says):
        parse_config_folders(texts, "home")


async def fetch(address: str, page: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/debug/{page}") as response:
        assert response.status == 200
        return json.loads(await response.text())


async def test_a_process_with_the_folders_of_two_clusters(tmp_path: pathlib.Path) -> None:
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
    listed = {name: {e["Addresses"][0] for e in found} for name, found in shards.items()}
    assert listed == {"Kubernetes/home": {"10.1.0.1"}, "Kubernetes/west": {"10.2.0.1"}}
    assert [(p["code"], p["name"]) for p in await fetch(at_http, "problemz")] == [("remote-configuration", "r")]
    plane.end()
    async with asyncio.timeout(30):
        await running
