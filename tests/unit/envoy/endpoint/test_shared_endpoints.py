"""Endpoints that all hosts of a ServiceEntry share."""

from __future__ import annotations

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.envoy.resource import Resource
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy

PORTS = "[{number: 80, name: http, protocol: HTTP}, {number: 9000, name: h2, protocol: HTTP2, targetPort: 9001}]"
INLINE = "endpoints: [{address: 10.9.0.1, labels: {v: '1'}}, {address: 10.9.0.2, ports: {http: 8080}, weight: 3}]"
SELECTED = "workloadSelector: {labels: {app: vm}}"
VM = make("WorkloadEntry", "vm", "{address: 10.9.0.3, labels: {app: vm}, serviceAccount: vm}")
HOSTS = ("a.example.com", "b.example.com")


def entry(name: str, hosts: tuple[str, ...], spec: str) -> Plain:
    return make("ServiceEntry", name, f"{{hosts: [{', '.join(hosts)}], ports: {PORTS}, resolution: STATIC, {spec}}}")


def assignments(*objects: Plain) -> dict[str, Resource]:
    mesh = World()
    mesh.apply_objects(VM, *objects)
    node = mesh.connect(proxy("sidecar", "web", "a", "10.0.0.1"))
    group = mesh.resources(node)["type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"]
    return {name: resource for name, resource in group.items() if "example.com" in name}


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


def test_change_of_the_endpoints_reaches_all_hosts() -> None:
    mesh = World()
    mesh.apply_objects(entry("both", HOSTS, INLINE))
    node = mesh.connect(proxy("sidecar", "web", "a", "10.0.0.1"))
    mesh.resources(node)
    mesh.apply_objects(entry("both", HOSTS, "endpoints: [{address: 10.9.0.7}]"))
    group = mesh.resources(node)["type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"]
    for host in HOSTS:
        (locality,) = endpoint_pb2.ClusterLoadAssignment.FromString(
            b"".join(group[f"outbound|80||{host}"].message_pieces)
        ).endpoints
        (member,) = locality.lb_endpoints
        assert member.endpoint.address.socket_address.address == "10.9.0.7"
