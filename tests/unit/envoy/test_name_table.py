"""The names that a proxy's agent resolves, and their addresses."""

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


def table(
    *objects: Plain, west: tuple[Plain, ...] = (), environ: dict[str, str] | None = None, **metadata: str
) -> dict[str, list[str]]:
    """The addresses of each name, as a sidecar of namespace `b` is told them."""
    world = World(environ=environ)
    world.set({**rows_of(objects), **rows_of(west, "west")})
    node = world.connect(proxy("sidecar", "web-0", "b", "10.9.0.1", {}, DNS_CAPTURE="true", **metadata))
    ((_, raw),) = snapshot(world, [node])[node][NAME_TABLE].items()
    assert not world.failures
    found = nds_pb2.NameTable()
    assert any_pb2.Any.FromString(raw).Unpack(found)
    return {host: list(info.ips) for host, info in found.table.items()}


def test_a_service_is_answered_with_its_address() -> None:
    assert table(make("Service", "api", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}")) == {
        "api.a.svc.cluster.local": ["10.96.0.1"]
    }


def test_a_headless_service_is_answered_with_its_ready_pods_and_each_pod_by_its_name() -> None:
    assert table(*PEERS) == {"first.peers.a.svc.cluster.local": ["10.1.0.2"], "peers.a.svc.cluster.local": ["10.1.0.2"]}


def test_pods_are_answered_whichever_port_they_serve_and_with_both_families() -> None:
    """Every slice counts, and a pod that is in two of them is one pod."""
    found = table(
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
    assert sorted(found["peers-0.peers.a.svc.cluster.local"]) == ["10.1.0.2", "fd00::2"]
    assert found["peers-1.peers.a.svc.cluster.local"] == ["10.1.0.3"]
    assert sorted(found["peers.a.svc.cluster.local"]) == ["10.1.0.2", "10.1.0.3", "fd00::2"]


def test_of_two_pods_of_one_name_that_of_the_own_cluster_is_answered() -> None:
    for cluster, address in (("Kubernetes", "10.1.0.2"), ("west", "10.2.0.2")):
        found = table(*PEERS, west=WEST, CLUSTER_ID=cluster)
        assert found["first.peers.a.svc.cluster.local"] == [address]
        assert set(found["peers.a.svc.cluster.local"]) == {"10.1.0.2", "10.2.0.2", "10.2.0.4"}


@pytest.mark.parametrize("name", ["also", "zebra"])
def test_of_pods_of_one_name_behind_several_services_that_of_the_own_cluster_is_answered(name: str) -> None:
    """The service that comes first by name knows the pod of the other cluster alone."""
    also = (
        make("Service", name, "{clusterIP: None, ports: [{name: tcp, port: 90}]}"),
        endpoint_slice(name, at("10.2.0.2", "peers-0"), ports="[{name: tcp, port: 90}]"),
    )
    assert table(*PEERS, west=(*WEST, *also))["first.peers.a.svc.cluster.local"] == ["10.1.0.2"]


def test_pods_of_another_network_are_not_answered() -> None:
    found = table(*PEERS, west=WEST, NETWORK="near")
    assert "peers-4.peers.a.svc.cluster.local" not in found
    assert set(found["peers.a.svc.cluster.local"]) == {"10.1.0.2", "10.2.0.2"}


def test_pods_of_other_clusters_can_be_left_out_but_by_their_own_names() -> None:
    found = table(*PEERS, west=WEST, environ={"ENABLE_MULTICLUSTER_HEADLESS": "false"})
    assert found["peers.a.svc.cluster.local"] == ["10.1.0.2"]
    assert found["peers-4.peers.a.svc.cluster.local"] == ["10.2.0.4"]


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
    assert table(entry("x", spec)) == expected


def test_an_allocated_address_is_answered_to_proxies_that_use_those() -> None:
    allocated = entry("x", "hosts: [x.com], resolution: DNS") | {
        "status": {"addresses": [{"host": "x.com", "value": "240.240.0.9"}]}
    }
    assert table(allocated, DNS_AUTO_ALLOCATE="true") == {"x.com": ["240.240.0.9"]}
    assert table(allocated, environ={"PILOT_ENABLE_IP_AUTOALLOCATE": "false"}) == {}


def test_an_external_name_has_no_address_of_its_own() -> None:
    assert table(make("Service", "far", "{type: ExternalName, externalName: x.com, ports: [{port: 80}]}")) == {}
    assert (
        table(
            make(
                "Service", "far", "{type: ExternalName, externalName: x.com, clusterIP: 10.96.0.9, ports: [{port: 80}]}"
            )
        )
        == {}
    )
