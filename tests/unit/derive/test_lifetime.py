"""Nodes derived for removed objects are freed by one sweep while proxies stay connected."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pilot.derive import Derived, derived
from testing.mesh.number_derivations import NumberDatabase, keys, number, numbers, sentence
from testing.mesh.world import Rows, World, parse_objects, proxy, rows_of

PROXIES = [
    proxy("sidecar", "home-0", "shop", "10.1.0.1", {"app": "home"}),
    proxy("sidecar", "other-0", "other", "10.1.0.2", {"app": "other"}),
    proxy("router", "ingress-0", "edge", "10.1.0.8", {"istio": "ingress"}),
]
HOME = """
apiVersion: v1
kind: Service
metadata: {name: home, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: home}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: other}
spec: {egress: [{hosts: ["./*", "shop/*"]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: edge}
spec: {selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: s{0}, namespace: shop}}
spec: {{clusterIP: 10.97.0.{0}, selector: {{app: s{0}}}, ports: [{{name: http, port: 80}}, {{name: tcp, port: 9000}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: s{0}-0, namespace: shop, labels: {{kubernetes.io/service-name: s{0}}}}}
addressType: IPv4
endpoints: [{{addresses: [10.2.0.{0}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: s{0}-0, namespace: shop}}}}]
ports: [{{name: http, port: 8080}}, {{name: tcp, port: 9000}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: s{0}-0, namespace: shop, labels: {{app: s{0}}}}}
spec: {{containers: [{{name: app, image: app}}]}}
status: {{phase: Running, podIP: 10.2.0.{0}, podIPs: [{{ip: 10.2.0.{0}}}], conditions: [{{type: Ready, status: "True"}}]}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: s{0}, namespace: shop}}
spec: {{host: s{0}, subsets: [{{name: v1, labels: {{version: v1}}}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: s{0}, namespace: shop}}
spec: {{hosts: [s{0}, s{0}.example.com], gateways: [mesh, edge/gw], http: [{{route: [{{destination: {{host: s{0}, subset: v1}}}}]}}]}}
"""
HOST = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: h{0}, namespace: shop}}
spec: {{hosts: [h{0}.example.com], location: MESH_EXTERNAL, resolution: DNS, ports: [{{number: 443, name: tls, protocol: TLS}}]}}
"""


def mesh_with_proxies() -> tuple[World, list[str]]:
    world = World()
    world.apply(HOME)
    return world, [world.connect(p) for p in PROXIES]


def node_counts(world: World, ids: list[str], objects: Rows, batch_size: int) -> tuple[int, int, int]:
    """Return the node counts before the objects are added, with the last batch, and after their removal."""
    contents = [world.resources(node_id) for node_id in ids]
    before, peak = world.sweep(), 0
    rows = list(objects.items())
    for start in range(0, len(rows), batch_size):
        part = dict(rows[start : start + batch_size])
        world.set(part)
        assert [world.resources(node_id) for node_id in ids] != contents
        peak = world.sweep()
        world.set(dict.fromkeys(part))
        assert [world.resources(node_id) for node_id in ids] == contents
    return before, peak, world.sweep()


def test_removed_services_leave_no_nodes() -> None:
    world, ids = mesh_with_proxies()
    services = rows_of(parse_objects("---".join(SERVICE.format(number) for number in range(1, 51))))
    before, peak, after = node_counts(world, ids, services, len(services))
    assert peak > before + 50 * 20
    assert after == before


def test_removed_hosts_leave_no_nodes() -> None:
    world, ids = mesh_with_proxies()
    hosts = rows_of(parse_objects("---".join(HOST.format(number) for number in range(120))))
    before, peak, after = node_counts(world, ids, hosts, 20)
    assert peak > before
    assert after == before


def test_nodes_of_removed_services_are_not_rerun() -> None:
    world, ids = mesh_with_proxies()
    services = rows_of(parse_objects("---".join(SERVICE.format(number) for number in range(1, 11))))
    world.set(services)
    for node_id in ids:
        world.resources(node_id)
    world.set(dict.fromkeys(services))
    for node_id in ids:
        world.resources(node_id)
    size = len(world.mesh)
    runs: list[str] = []
    world.mesh.on_run = lambda node: runs.append(repr(node))
    world.apply(HOME.replace("port: 80}", "port: 81}"))
    for node_id in ids:
        world.resources(node_id)
    assert not [run for run in runs if any(f"'s{number}" in run for number in range(1, 11))]
    assert world.sweep() < size


@derived
def listed(db: NumberDatabase) -> tuple[str, ...]:
    """Return a sentence about each number."""
    return tuple(sentence(db, key) for key in keys(db))


@pytest.mark.parametrize("many", [listed, numbers])
def test_node_with_many_inputs_is_freed_in_steps(many: Derived[[], Any]) -> None:
    db = NumberDatabase(1000)
    db.set("n00013", 14)
    db.unwatch(db.watch(many))
    inputs = list(db.nodes_of(sentence if many is listed else number))
    left = [len(inputs)]
    while db.collect_some(50):
        left.append(sum(1 for node in inputs if node.readers))
    assert max(before - after for before, after in itertools.pairwise([*left, 0])) <= 50
    assert not list(db.live_nodes())


@pytest.mark.parametrize("many", [listed, numbers])
def test_node_that_is_read_again_while_its_inputs_are_unlinked_is_updated(many: Derived[[], Any]) -> None:
    db = NumberDatabase(1000)
    db.set("n00013", 14)
    db.unwatch(db.watch(many))
    assert db.collect_some(200)
    node = db.watch(many)
    while db.collect_some(200):
        pass
    for key in ("n00000", "n00500", "n00999"):
        assert db.commit([(db.numbers, key, -2000)]) == [node]
        db.refresh(node)
    assert node.value == (
        tuple(f"{key} is {'+' if (db.numbers.peek(key) or 0) > 0 else '-'}" for key in keys(db))
        if many is listed
        else {key: db.numbers.peek(key) for key in keys(db)}
    )
    db.unwatch(node)
    db.collect()
    assert not list(db.live_nodes())
