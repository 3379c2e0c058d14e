"""Services with many ports and subsets, and rules for many services, which would have a cluster for each pair."""

from __future__ import annotations

from typing import Any

from pilot.config.object import ObjectKey
from pilot.config.validation.expansion import MAX_WILDCARD_SUBSETS
from pilot.envoy.cluster.cluster_keys import MAX_WILDCARD_CLUSTERS
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.analysis.destination_rule import destination_rule_problems
from pilot.mesh.traffic.destination_rules import MAX_SUBSET_CLUSTERS
from pilot.mesh.traffic.rule_pools import MAX_MERGED
from testing.mesh.world import World, proxy

PORTS, SUBSETS = 256, 10_000


def _object(kind: str, spec: Any, name: str = "large") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "tenant"}
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


def _hosts(count: int) -> dict[str, Any]:
    ports = [{"name": "http", "number": 80, "protocol": "HTTP"}]
    return _object(
        "ServiceEntry", {"hosts": [f"h{i}.example.com" for i in range(count)], "resolution": "DNS", "ports": ports}
    )


def test_thousands_of_rules_for_a_wildcard_host_are_merged_up_to_a_limit() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "other", "10.0.0.1"))
    rules = [
        _object("DestinationRule", {"host": "*.example.com", "subsets": [{"name": f"s{i:04}"}]}, f"rule-{i:04}")
        for i in range(2000)
    ]
    world.apply_objects(_hosts(1), *rules)
    names = {name for name in world.resources(node)[CLUSTER] if name.endswith("h0.example.com")}
    assert names == {
        f"outbound|80|{subset}|h0.example.com" for subset in ("", *(f"s{i:04}" for i in range(MAX_MERGED)))
    }
    codes = {
        name: {p.code for p in world.value(destination_rule_problems, ObjectKey("tenant", name))}
        for name in (f"rule-{MAX_MERGED - 1:04}", f"rule-{MAX_MERGED:04}")
    }
    assert ["too-many" in listed for listed in codes.values()] == [False, True]


def test_subsets_of_a_wildcard_rule_for_all_services_are_limited() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    subsets = [{"name": f"s{i}"} for i in range(MAX_WILDCARD_SUBSETS)]
    world.apply_objects(_hosts(200), _object("DestinationRule", {"host": "*", "subsets": subsets}))
    names = {name for name in world.resources(node)[CLUSTER] if name.endswith(".example.com")}
    assert len([name for name in names if "||" not in name]) == MAX_WILDCARD_CLUSTERS
    assert {f"outbound|80||h{i}.example.com" for i in range(200)} < names
    assert not world.failures
