"""The network of a workload, and the gateways between networks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.lib.labels import NETWORK
from pilot.mesh.registry.networks import (
    NetworkGateway,
    NetworkGateways,
    all_network_gateways,
    build_network_gateways,
    find_network,
    network_gateways,
)
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import World


def with_networks(harness: World, **networks: Any) -> World:
    harness.mesh.commit([(harness.mesh.mesh, "networks", msgspec.convert({"networks": networks}, MeshNetworks))])
    return harness


SYSTEM = make("Namespace", "istio-system", labels=f"{{{NETWORK}: system}}")
WIDE, NARROW = {"endpoints": [{"fromCidr": "10.0.0.0/8"}]}, {"endpoints": [{"fromCidr": "10.1.0.0/16"}]}


def test_network_of_a_workload() -> None:
    assert find_network(world().mesh, "Kubernetes", "10.1.0.1", {}) == ""
    assert find_network(world(SYSTEM).mesh, "Kubernetes", "10.1.0.1", {NETWORK: "own"}) == "own"
    assert find_network(with_networks(world(SYSTEM), wide=WIDE).mesh, "Kubernetes", "10.1.0.1", {}) == "system"
    by_address = with_networks(world(), wide=WIDE, narrow=NARROW, wrong={"endpoints": [{"fromCidr": "x"}]}).mesh
    ips = ("10.1.0.1", "10.2.0.1", "192.0.2.1", "x.example.com", "")
    assert [find_network(by_address, "Kubernetes", ip, {}) for ip in ips] == ["wide", "wide", "", "", ""]
    by_registry = with_networks(world(), wide=WIDE, here={"endpoints": [{"fromRegistry": "Kubernetes"}]}).mesh
    assert find_network(by_registry, "Kubernetes", "10.1.0.1", {}) == "here"
    assert (
        find_network(
            with_networks(world(), there={"endpoints": [{"fromRegistry": "other"}]}).mesh, "Kubernetes", "10.1.0.1", {}
        )
        == ""
    )


def load_balancer(
    *ingress: str, ports: str = "[{name: tls, port: 15443}]", labels: str = f"{{{NETWORK}: net}}", **more: Any
) -> Plain:
    spec = f"{{type: LoadBalancer, clusterIP: 10.96.0.9, ports: {ports}}}"
    status = {"loadBalancer": {"ingress": [{"ip": i} if i[0].isdigit() else {"hostname": i} for i in ingress]}}
    return make("Service", "eastwest", spec, "istio-system", labels=labels, **more) | {"status": status}


def test_labelled_service_is_a_network_gateway_on_the_gateway_ports() -> None:
    assert network_gateways(world(load_balancer("1.1.1.1", "1.1.1.2")).mesh).gateways == (
        NetworkGateway("1.1.1.1", 15443, "net", "Kubernetes"),
        NetworkGateway("1.1.1.2", 15443, "net", "Kubernetes"),
    )
    port = f"{{{NETWORK}: net, networking.istio.io/gatewayPort: '443'}}"
    both = load_balancer("1.1.1.1", ports="[{name: a, port: 443}, {name: b, port: 15008}]", labels=port)
    assert network_gateways(world(both).mesh).gateways == (NetworkGateway("1.1.1.1", 443, "net", "Kubernetes", 15008),)
    assert network_gateways(world(load_balancer("1.1.1.1", ports="[{name: a, port: 80}]")).mesh).gateways == ()
    assert network_gateways(world(load_balancer("1.1.1.1", labels="{}")).mesh).gateways == ()


def test_gateways_with_hostnames_are_listed_separately() -> None:
    mesh = world(load_balancer("lb.example.com", "1.1.1.1")).mesh
    assert [g.address for g in network_gateways(mesh).gateways] == ["1.1.1.1"]
    assert [g.address for g in all_network_gateways(mesh).gateways] == ["1.1.1.1", "lb.example.com"]


def node(name: str, ip: str, labels: str = "{}") -> Plain:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": ip}]
    return make("Node", name, labels=labels) | {"status": {"addresses": addresses}}


def test_node_port_gateway_uses_node_addresses() -> None:
    ports = "[{name: tls, port: 15443, nodePort: 31443}]"
    plain = make(
        "Service",
        "eastwest",
        f"{{type: NodePort, clusterIP: 10.96.0.9, ports: {ports}}}",
        "istio-system",
        labels=f"{{{NETWORK}: net}}",
        annotations='{traffic.istio.io/nodeSelector: \'{"edge": "yes"}\'}',
    )
    mesh = world(plain, node("n1", "5.5.5.1", "{edge: 'yes'}"), node("n2", "5.5.5.2")).mesh
    assert network_gateways(mesh).gateways == (NetworkGateway("5.5.5.1", 31443, "net", "Kubernetes"),)
    assert (
        network_gateways(world({**plain, "spec": {**plain["spec"], "externalIPs": ["6.6.6.6"]}}).mesh)
        .gateways[0]
        .address
        == "6.6.6.6"
    )


def test_gateways_from_mesh_networks() -> None:
    harness = with_networks(
        world(load_balancer("1.1.1.1", labels="{}", ports="[{name: tls, port: 443}]")),
        far={"gateways": [{"address": "9.9.9.9", "port": 15443}]},
        here={
            "endpoints": [{"fromRegistry": "Kubernetes"}],
            "gateways": [{"registryServiceName": "eastwest.istio-system.svc.cluster.local", "port": 443}],
        },
    )
    assert network_gateways(harness.mesh).gateways == (
        NetworkGateway("1.1.1.1", 443, "here", "Kubernetes"),
        NetworkGateway("9.9.9.9", 15443, "far"),
    )


@pytest.mark.parametrize(("counts", "scale"), [((), 1), ((1,), 1), ((2, 3), 6), ((4, 6), 12)])
def test_scale_divides_evenly_among_the_gateways_of_every_network(counts: tuple[int, ...], scale: int) -> None:
    gateways = build_network_gateways(
        NetworkGateway(f"1.1.{n}.{i}", 1, f"net{n}") for n, count in enumerate(counts) for i in range(count)
    )
    assert gateways.scale == scale


def test_gateways_of_the_endpoint_cluster_are_preferred() -> None:
    gateways = NetworkGateways((NetworkGateway("1.1.1.1", 1, "net", "one"), NetworkGateway("1.1.1.2", 1, "net", "two")))
    assert [g.address for g in gateways.into("net", "two")] == ["1.1.1.2"]
    assert [g.address for g in gateways.into("net", "three")] == ["1.1.1.1", "1.1.1.2"]
    assert gateways.into("other", "one") == ()
