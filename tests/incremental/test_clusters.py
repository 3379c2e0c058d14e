"""Random edits of services and DestinationRules: clusters equal those of a fresh start, and an edit rebuilds only its host."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from pilot.derive import Gather, Node
from pilot.envoy.cluster.cluster_keys import find_destination
from pilot.envoy.cluster.cluster_traits import outbound_traits
from pilot.envoy.cluster.outbound_clusters import (
    location_independent_cluster,
    outbound_clusters,
    resolve_cluster,
)
from pilot.envoy.endpoint.inline_clusters import inline_clusters, sni_routed_clusters
from pilot.envoy.endpoint.load_assignments import outbound_load_assignments, sni_load_assignments
from pilot.envoy.resource import Resource
from pilot.mesh.model.facets import Labels, OutboundFacet, ScopeFacet
from pilot.mesh.model.proxy import NodeType
from testing.mesh.world import Rows, World, parse_objects, rows_of

NAMESPACES = ("a", "b", "istio-system")
HOSTS = (
    "x.a.svc.cluster.local",
    "y.b.svc.cluster.local",
    "x",
    "*.a.svc.cluster.local",
    "*.cluster.local",
    "*",
    "ext.example.com",
)
POLICIES = (
    "{loadBalancer: {simple: RANDOM}}",
    "{loadBalancer: {simple: PASSTHROUGH}}",
    "{tls: {mode: SIMPLE}}",
    "{portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, credentialName: ca}}]}",
    "{portLevelSettings: [{port: {number: 80}, tls: {mode: DISABLE}}]}",
    "{connectionPool: {http: {h2UpgradePolicy: UPGRADE}}, outlierDetection: {minHealthPercent: 10}}",
)
LABELS: tuple[Labels, ...] = (frozenset(), frozenset({("app", "web")}))
FACETS = [
    OutboundFacet(type=kind, scope=ScopeFacet(namespace, gateway=kind is NodeType.ROUTER), labels=labels)
    for namespace in NAMESPACES
    for kind in (NodeType.SIDECAR, NodeType.ROUTER)
    for labels in LABELS
]
STEPS = 40


def destination_rule(rng: random.Random, namespace: str, name: str) -> Rows:
    parts = [f"host: '{rng.choice(HOSTS)}'"]
    if rng.random() < 0.6:
        parts.append(f"trafficPolicy: {rng.choice(POLICIES)}")
    if rng.random() < 0.5:
        subsets = [f"{{name: {n}, labels: {{version: {n}}}}}" for n in ("v1", "v2") if rng.random() < 0.7]
        parts.append(f"subsets: [{', '.join(subsets)}]")
    if rng.random() < 0.3:
        parts.append("workloadSelector: {matchLabels: {app: web}}")
    elif rng.random() < 0.4:
        parts.append(f"exportTo: [{rng.choice(['.', 'a', 'b', '*'])!r}]")
    return rows_of(
        parse_objects(f"""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: "2025-01-01T00:00:0{rng.randrange(3)}Z"}}
spec: {{{", ".join(parts)}}}
""")
    )


def service(rng: random.Random, namespace: str, name: str, ip: str) -> Rows:
    cluster_ip = rng.choice([ip, ip, "None"])
    ports = rng.choice(
        [
            "[{name: http, port: 80}]",
            "[{name: http, port: 80}, {name: tcp, port: 90}]",
            "[{name: grpc, port: 80}]",
            "[{name: unknown, port: 80}]",
        ]
    )
    hidden = rng.choice(["{}", "{}", "{networking.istio.io/exportTo: '.'}"])
    return rows_of(
        parse_objects(f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}, annotations: {hidden}}}
spec: {{clusterIP: {cluster_ip}, clusterIPs: [{cluster_ip}], selector: {{app: {name}}}, ports: {ports}}}
""")
    )


def service_entry(rng: random.Random) -> Rows:
    endpoints = ", ".join(
        f"{{address: e{i}.example.com, labels: {{version: v{i}}}}}" for i in (1, 2) if rng.random() < 0.7
    )
    return rows_of(
        parse_objects(f"""
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: ext, namespace: b}}
spec:
  hosts: [ext.example.com]
  location: {rng.choice(["MESH_EXTERNAL", "MESH_INTERNAL"])}
  resolution: DNS
  ports: [{{name: tls, number: 443, protocol: TLS}}]
  endpoints: [{endpoints}]
""")
    )


SLOTS: list[Any] = [
    *(lambda c, n=n, name=name: destination_rule(c, n, name) for n in NAMESPACES for name in ("one", "two")),
    lambda c: service(c, "a", "x", "10.0.0.1"),
    lambda c: service(c, "b", "y", "10.0.0.2"),
    service_entry,
]
GROUPS: list[tuple[Gather[Any, Any, Resource], OutboundFacet]] = [
    *((group, facet) for facet in FACETS for group in (outbound_clusters, inline_clusters)),
    *((sni_routed_clusters, facet) for facet in FACETS if facet.type is NodeType.ROUTER),
]


def contents(world: World, nodes: list[Node]) -> list[dict[str, bytes]]:
    for node in nodes:
        world.mesh.refresh(node)
        assert node.error is None
    return [{r.name: r.any for r in node.value.values()} for node in nodes]


@pytest.mark.parametrize("part", range(4))
def test_clusters_equal_those_of_a_fresh_start(seed: int, part: int) -> None:
    rng = random.Random(f"clusters {seed} {part}")
    world = World()
    current: list[Rows] = [slot(rng) if rng.random() < 0.6 else {} for slot in SLOTS]
    world.set({key: row for rows in current for key, row in rows.items()})
    nodes = [world.mesh.watch(group, facet) for group, facet in GROUPS]
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in rng.sample(range(len(SLOTS)), rng.randint(1, 2)):
            replacement: Rows = {} if rng.random() < 0.3 else SLOTS[index](rng)
            edits |= dict.fromkeys(current[index]) | dict(replacement)
            current[index] = replacement
        world.set(edits)
        scratch = World()
        scratch.set({key: row for rows in current for key, row in rows.items()})
        expected = contents(scratch, [scratch.mesh.watch(group, facet) for group, facet in GROUPS])
        assert contents(world, nodes) == expected, f"part {part} step {step} after {list(edits)}"
        assert not world.failures
        world.mesh.collect()


@pytest.mark.parametrize("part", range(4))
def test_every_eds_cluster_has_a_load_assignment(seed: int, part: int) -> None:
    rng = random.Random(f"endpoints {seed} {part}")
    for _ in range(10):
        world = World()
        for slot in SLOTS:
            world.set(slot(rng) if rng.random() < 0.8 else {})
        for facet in FACETS:
            pairs = [
                (outbound_clusters, outbound_load_assignments),
                (inline_clusters, outbound_load_assignments),
                (sni_routed_clusters, sni_load_assignments),
            ]
            for clusters, assignments in pairs[: 3 if facet.type is NodeType.ROUTER else 2]:
                expected = {r.warms for r in world.mesh.watch(clusters, facet).value.values() if r.warms}
                assigned = {r.name for r in world.mesh.watch(assignments, facet).value.values()}
                assert expected == (set() if clusters is inline_clusters else assigned)
        assert not world.failures


def test_routers_share_only_clusters_that_are_the_same_for_sidecars(seed: int) -> None:
    rng = random.Random(f"routers {seed}")
    shared = own = 0
    for _ in range(40):
        world = World()
        for slot in SLOTS:
            world.set(slot(rng) if rng.random() < 0.8 else {})
        for router in FACETS:
            if router.type is not NodeType.ROUTER:
                continue
            sidecar = msgspec.structs.replace(router, type=NodeType.SIDECAR)
            clusters, of_sidecar = (world.mesh.watch(outbound_clusters, f).value for f in (router, sidecar))
            for key, resource in clusters.items():
                destination = find_destination(world.mesh, key)
                assert destination is not None
                assert resource == resolve_cluster(world.mesh, destination, outbound_traits(router))
                shared, own = shared + (resource is of_sidecar[key]), own + (resource != of_sidecar[key])
        assert not world.failures
    assert shared
    assert own


SHOP = "".join(
    f"""---
apiVersion: v1
kind: Service
metadata: {{name: s{i}, namespace: a}}
spec: {{clusterIP: 10.0.1.{i}, clusterIPs: [10.0.1.{i}], selector: {{app: s{i}}}, ports: [{{name: http, port: 80}}]}}
"""
    for i in range(20)
)
RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: s7, namespace: a}
spec: {host: s7, subsets: [{name: %s}]}
"""


def test_rule_edit_rebuilds_only_its_host_once() -> None:
    world = World()
    world.apply(SHOP + "---" + RULE % "old")
    facets = [OutboundFacet(type=NodeType.SIDECAR, scope=ScopeFacet(n)) for n in ("a", "b", "c", "d")]
    nodes = [world.mesh.watch(outbound_clusters, facet) for facet in facets]
    before = contents(world, nodes)
    cluster_names: list[Any] = []
    world.mesh.on_run = lambda node: (
        cluster_names.append(node.args[0].name) if node.fn is location_independent_cluster else None
    )
    world.apply(RULE % "new")
    after = contents(world, nodes)
    host = "s7.a.svc.cluster.local"
    assert sorted(cluster_names) == [f"outbound|80|new|{host}", f"outbound|80||{host}"]
    assert all(a.keys() - b.keys() == {f"outbound|80|new|{host}"} for a, b in zip(after, before, strict=True))
    assert all(a[n] == b[n] for a, b in zip(after, before, strict=True) for n in a.keys() & b.keys())
    values = [node.value for node in nodes]
    assert all(values[0][key] is other[key] for other in values for key in values[0])  # one copy of the bytes


def test_namespaces_without_rules_share_clusters() -> None:
    world = World()
    world.apply(SHOP + "---" + RULE % "v1")
    runs: list[Any] = []
    for scope in ("b", "c"):
        runs.clear()
        world.mesh.on_run = lambda node: runs.append(node.fn)
        for group in (outbound_clusters, outbound_load_assignments):
            world.mesh.watch(group, OutboundFacet(type=NodeType.SIDECAR, scope=ScopeFacet(scope)))
        builds = runs.count(location_independent_cluster)
        assert builds == (21 if scope == "b" else 0), "clusters are built only for the first namespace"
    assert len(runs) < 30, "the rest is the visibility of services"
