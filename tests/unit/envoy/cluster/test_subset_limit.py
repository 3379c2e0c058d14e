"""Services with many ports and subsets, which would have a cluster for each pair."""

from __future__ import annotations

from typing import Any

from pilot.config.object import ObjectKey
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.analysis.destination_rule import destination_rule_problems
from pilot.mesh.traffic.destination_rules import MAX_SUBSET_CLUSTERS
from testing.mesh.world import World, proxy

PORTS, SUBSETS = 256, 10_000


def _object(kind: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": "large", "namespace": "tenant"}
    return {"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def test_clusters_for_each_port_and_subset_are_limited() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "other", "10.0.0.1"))
    ports = [{"name": f"p{i}", "number": 1000 + i, "protocol": "HTTP"} for i in range(PORTS)]
    subsets = [{"name": f"s{i}"} for i in range(SUBSETS)]
    world.apply_objects(
        _object("ServiceEntry", {"hosts": ["large.example.com"], "resolution": "DNS", "ports": ports}),
        _object("DestinationRule", {"host": "large.example.com", "subsets": subsets}),
    )
    names = {name for name in world.resources(node)[CLUSTER] if name.endswith("large.example.com")}
    assert len(names) == MAX_SUBSET_CLUSTERS + PORTS
    assert {f"outbound|{port}|s0|large.example.com" for port in (1000, 1000 + PORTS - 1)} < names
    problems = world.value(destination_rule_problems, ObjectKey("tenant", "large"))
    assert ("too-many-subsets", "spec.subsets") in {(p.code, p.path) for p in problems}
    assert not world.failures
