"""Endpoints that all hosts of a ServiceEntry share."""

from __future__ import annotations

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import CLUSTER, ENDPOINT
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy

PORTS = "[{number: 80, name: http, protocol: HTTP}, {number: 9000, name: h2, protocol: HTTP2, targetPort: 9001}]"
INLINE = "endpoints: [{address: 10.9.0.1, labels: {v: '1'}}, {address: 10.9.0.2, ports: {http: 8080}, weight: 3}]"
SELECTED = "workloadSelector: {labels: {app: vm}}"
VMS = tuple(
    make("WorkloadEntry", f"vm{n}", f"{{address: 10.9.0.{n}, labels: {{app: vm, v: '1'}}, serviceAccount: vm}}")
    for n in (3, 4)
)
HOSTS = ("a.example.com", "b.example.com")


def entry(name: str, hosts: tuple[str, ...], spec: str, resolution: str = "STATIC") -> Plain:
    listed = ", ".join(hosts)
    return make("ServiceEntry", name, f"{{hosts: [{listed}], ports: {PORTS}, resolution: {resolution}, {spec}}}")


def resources(type_url: str, *objects: Plain) -> dict[str, Resource]:
    mesh = World()
    mesh.apply_objects(*VMS, *objects)
    node = mesh.connect(proxy("sidecar", "web", "a", "10.0.0.1"))
    return {name: resource for name, resource in mesh.resources(node)[type_url].items() if "example.com" in name}


def assignments(*objects: Plain) -> dict[str, Resource]:
    return resources(ENDPOINT, *objects)


RULE = "{host: %s, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}, subsets: [{name: one, labels: {v: '1'}}]}"
BALANCED = "{host: %s, trafficPolicy: {outlierDetection: {interval: 1s}}}"


@pytest.mark.parametrize("spec", [INLINE, SELECTED])
@pytest.mark.parametrize("rule", ["", RULE, BALANCED])
def test_assignments_equal_those_of_an_entry_for_each_host(spec: str, rule: str) -> None:
    rules = [make("DestinationRule", host[0], rule % host) for host in HOSTS if rule]
    together = assignments(entry("both", HOSTS, spec), *rules)
    apart = assignments(*(entry("both", (host,), spec) for host in HOSTS[:1]), *rules[:1])
    assert {name: resource.encoded for name, resource in together.items() if HOSTS[0] in name} == {
        name: resource.encoded for name, resource in apart.items()
    }
    assert len(together) == 2 * len(apart) > 0


def test_hosts_share_one_copy_of_the_endpoints() -> None:
    group = assignments(entry("both", HOSTS, INLINE))
    first, second = (group[f"outbound|80||{host}"] for host in HOSTS)
    assert first.pieces[1] is second.pieces[1]
    assert len(endpoint_pb2.ClusterLoadAssignment.FromString(first.pieces[1]).endpoints[0].lb_endpoints) == 2


@pytest.mark.parametrize(("resolution", "spec"), [("DNS", INLINE), ("DNS", SELECTED), ("DNS_ROUND_ROBIN", SELECTED)])
@pytest.mark.parametrize("rule", ["", RULE, BALANCED])
def test_clusters_with_endpoints_equal_those_of_an_entry_for_each_host(resolution: str, spec: str, rule: str) -> None:
    rules = [make("DestinationRule", host[0], rule % host) for host in HOSTS if rule]
    together = resources(CLUSTER, entry("both", HOSTS, spec, resolution), *rules)
    apart = resources(CLUSTER, entry("both", HOSTS[:1], spec, resolution), *rules[:1])
    assert {name: resource.encoded for name, resource in together.items() if HOSTS[0] in name} == {
        name: resource.encoded for name, resource in apart.items()
    }
    assert len(together) == 2 * len(apart) > 0


def test_clusters_share_one_copy_of_the_endpoints() -> None:
    group = resources(CLUSTER, entry("both", HOSTS, INLINE, "DNS"))
    first, second = (group[f"outbound|80||{host}"] for host in HOSTS)
    assert first.pieces[1] is second.pieces[1]
    cluster = cluster_pb2.Cluster.FromString(b"".join(second.message_pieces))
    assert cluster.load_assignment.cluster_name == cluster.name == f"outbound|80||{HOSTS[1]}"
    addresses = [e.endpoint.address.socket_address for e in cluster.load_assignment.endpoints[0].lb_endpoints]
    assert [(address.address, address.port_value) for address in addresses] == [("10.9.0.1", 80), ("10.9.0.2", 8080)]


def test_only_the_first_endpoint_is_used_with_round_robin() -> None:
    resource = resources(CLUSTER, entry("both", HOSTS, SELECTED, "DNS_ROUND_ROBIN"))[f"outbound|80||{HOSTS[1]}"]
    cluster = cluster_pb2.Cluster.FromString(b"".join(resource.message_pieces))
    assert cluster.type == cluster_pb2.Cluster.LOGICAL_DNS
    (member,) = cluster.load_assignment.endpoints[0].lb_endpoints
    assert member.endpoint.address.socket_address.address == "10.9.0.3"


def test_change_of_the_endpoints_reaches_all_hosts() -> None:
    mesh = World()
    mesh.apply_objects(entry("both", HOSTS, INLINE))
    node = mesh.connect(proxy("sidecar", "web", "a", "10.0.0.1"))
    mesh.resources(node)
    mesh.apply_objects(entry("both", HOSTS, "endpoints: [{address: 10.9.0.7}]"))
    group = mesh.resources(node)[ENDPOINT]
    for host in HOSTS:
        (locality,) = endpoint_pb2.ClusterLoadAssignment.FromString(
            b"".join(group[f"outbound|80||{host}"].message_pieces)
        ).endpoints
        (member,) = locality.lb_endpoints
        assert member.endpoint.address.socket_address.address == "10.9.0.7"
