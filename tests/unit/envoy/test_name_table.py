"""Name tables for the DNS proxy of agents."""

from __future__ import annotations

import pytest
from google.protobuf import any_pb2

from pilot.lib.xds_types import NAME_TABLE
from protos import nds_pb2
from testing.edits.mesh_edits import snapshot
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy, rows_of

PEERS: tuple[Plain, ...] = (
    make("Service", "peers", "{clusterIP: None, ports: [{name: tcp, port: 90}]}"),
    endpoint_slice(
        "peers",
        at("10.1.0.2", "peers-0"),
        at("10.1.0.3", "peers-1", conditions="{ready: false}"),
        ports="[{name: tcp, port: 90}]",
    ),
    pod("peers-0", "10.1.0.2", spec="{subdomain: peers, hostname: first}"),
    pod("peers-1", "10.1.0.3", spec="{subdomain: peers}"),
)
WEST: tuple[Plain, ...] = (
    make("Service", "peers", "{clusterIP: None, ports: [{name: tcp, port: 90}]}"),
    endpoint_slice("peers", at("10.2.0.2", "peers-0"), at("10.2.0.4", "peers-4"), ports="[{name: tcp, port: 90}]"),
    pod("peers-0", "10.2.0.2", spec="{subdomain: peers, hostname: first}"),
    pod("peers-4", "10.2.0.4", spec="{subdomain: peers}", labels="{topology.istio.io/network: far}"),
)


def entry(name: str, spec: str) -> Plain:
    return make("ServiceEntry", name, f"{{{spec}, ports: [{{number: 80, name: http, protocol: HTTP}}]}}")


def name_table(
    *objects: Plain, west: tuple[Plain, ...] = (), environ: dict[str, str] | None = None, **metadata: str
) -> dict[str, list[str]]:
    """Return the addresses of each name in the table of a sidecar in namespace `b`."""
    world = World(environ=environ)
    world.set({**rows_of(objects), **rows_of(west, "west")})
    node = world.connect(proxy("sidecar", "web-0", "b", "10.9.0.1", {}, DNS_CAPTURE="true", **metadata))
    ((_, raw),) = snapshot(world, [node])[node][NAME_TABLE].items()
    assert not world.failures
    message = nds_pb2.NameTable()
    assert any_pb2.Any.FromString(raw).Unpack(message)
    return {host: list(info.ips) for host, info in message.table.items()}


def test_service_resolves_to_its_cluster_ip() -> None:
    assert name_table(make("Service", "api", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}")) == {
        "api.a.svc.cluster.local": ["10.96.0.1"]
    }


def test_headless_service_resolves_to_its_ready_pods() -> None:
    assert name_table(*PEERS) == {
        "first.peers.a.svc.cluster.local": ["10.1.0.2"],
        "peers.a.svc.cluster.local": ["10.1.0.2"],
    }


def test_headless_service_merges_ports_and_ip_families() -> None:
    """All slices are merged; a pod in two of them appears once."""
    addresses = name_table(
        make("Service", "peers", "{clusterIP: None, ports: [{name: tcp, port: 90}, {name: web, port: 80}]}"),
        endpoint_slice("peers", at("10.1.0.2", "peers-0"), ports="[{name: tcp, port: 90}]"),
        endpoint_slice(
            "peers",
            at("10.1.0.2", "peers-0"),
            at("10.1.0.3", "peers-1"),
            ports="[{name: web, port: 80}]",
            name="peers-web",
        ),
        endpoint_slice("peers", at("fd00::2", "peers-0"), ports="[{name: tcp, port: 90}]", name="peers-six")
        | {"addressType": "IPv6"},
        pod("peers-0", "10.1.0.2,fd00::2", spec="{subdomain: peers, hostname: peers-0}"),
        pod("peers-1", "10.1.0.3", spec="{subdomain: peers, hostname: peers-1}"),
        environ={"ISTIO_DUAL_STACK": "true"},
    )
    assert sorted(addresses["peers-0.peers.a.svc.cluster.local"]) == ["10.1.0.2", "fd00::2"]
    assert addresses["peers-1.peers.a.svc.cluster.local"] == ["10.1.0.3"]
    assert sorted(addresses["peers.a.svc.cluster.local"]) == ["10.1.0.2", "10.1.0.3", "fd00::2"]


def test_local_cluster_wins_for_a_pod_name() -> None:
    for cluster, address in (("Kubernetes", "10.1.0.2"), ("west", "10.2.0.2")):
        addresses = name_table(*PEERS, west=WEST, CLUSTER_ID=cluster)
        assert addresses["first.peers.a.svc.cluster.local"] == [address]
        assert set(addresses["peers.a.svc.cluster.local"]) == {"10.1.0.2", "10.2.0.2", "10.2.0.4"}


@pytest.mark.parametrize("name", ["also", "zebra"])
def test_local_cluster_wins_for_a_pod_name_across_services(name: str) -> None:
    """The service sorted first by name has only the pod of the other cluster."""
    second_service = (
        make("Service", name, "{clusterIP: None, ports: [{name: tcp, port: 90}]}"),
        endpoint_slice(name, at("10.2.0.2", "peers-0"), ports="[{name: tcp, port: 90}]"),
    )
    assert name_table(*PEERS, west=(*WEST, *second_service))["first.peers.a.svc.cluster.local"] == ["10.1.0.2"]


def test_pods_of_other_networks_are_omitted() -> None:
    addresses = name_table(*PEERS, west=WEST, NETWORK="near")
    assert "peers-4.peers.a.svc.cluster.local" not in addresses
    assert set(addresses["peers.a.svc.cluster.local"]) == {"10.1.0.2", "10.2.0.2"}


def test_multicluster_headless_can_be_disabled() -> None:
    addresses = name_table(*PEERS, west=WEST, environ={"ENABLE_MULTICLUSTER_HEADLESS": "false"})
    assert addresses["peers.a.svc.cluster.local"] == ["10.1.0.2"]
    assert addresses["peers-4.peers.a.svc.cluster.local"] == ["10.2.0.4"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("hosts: [x.com], addresses: [10.0.0.7, 10.0.0.8], resolution: DNS", {"x.com": ["10.0.0.7", "10.0.0.8"]}),
        ("hosts: ['*.x.com'], addresses: [10.0.0.7], resolution: NONE", {"*.x.com": ["10.0.0.7"]}),
        ("hosts: [x.com], addresses: [10.0.0.0/8], resolution: NONE", {}),
        ("hosts: [x.com], resolution: DNS", {"x.com": ["240.240.0.1"]}),
        ("hosts: [x.com], resolution: DNS, exportTo: ['.']", {}),
    ],
)
def test_service_entries(spec: str, expected: dict[str, list[str]]) -> None:
    assert name_table(entry("x", spec)) == expected


def test_allocated_addresses_need_dns_auto_allocate() -> None:
    service_entry = entry("x", "hosts: [x.com], resolution: DNS") | {
        "status": {"addresses": [{"host": "x.com", "value": "240.240.0.9"}]}
    }
    assert name_table(service_entry, DNS_AUTO_ALLOCATE="true") == {"x.com": ["240.240.0.9"]}
    assert name_table(service_entry, environ={"PILOT_ENABLE_IP_AUTOALLOCATE": "false"}) == {}


def test_external_name_services_have_no_address() -> None:
    assert name_table(make("Service", "far", "{type: ExternalName, externalName: x.com, ports: [{port: 80}]}")) == {}
    assert (
        name_table(
            make(
                "Service", "far", "{type: ExternalName, externalName: x.com, clusterIP: 10.96.0.9, ports: [{port: 80}]}"
            )
        )
        == {}
    )
