"""EnvoyFilters whose patches would be copied into too many resources."""

from __future__ import annotations

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import any_pb2

from pilot.config.object import ObjectKey
from pilot.config.problem import MAX_PROBLEMS
from pilot.envoy.plans.patch_problems import envoy_filter_problems
from pilot.lib.xds_types import CLUSTER
from testing.mesh.world import World, proxy


def _object(kind: str, namespace: str, spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.istio.io/v1alpha3" if kind == "EnvoyFilter" else "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"name": "large", "namespace": namespace},
        "spec": spec,
    }


def _merge(value: Any) -> dict[str, Any]:
    return {"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": value}}


def test_large_patch_of_many_clusters_is_ignored_and_reported() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    ports = [{"name": f"p{i}", "number": 1000 + i, "protocol": "HTTP"} for i in range(10)]
    hosts = [f"h{i}.example.com" for i in range(100)]
    large = {"metadata": {"filter_metadata": {"large": {"text": "x" * 900_000}}}}
    world.apply_objects(
        _object("ServiceEntry", "other", {"hosts": hosts, "resolution": "DNS", "ports": ports}),
        _object("EnvoyFilter", "tenant", {"configPatches": [_merge({"connect_timeout": "7s"}), _merge(large)]}),
    )
    resource = world.resources(node)[CLUSTER]["outbound|1000||h0.example.com"]
    cluster = cluster_pb2.Cluster.FromString(any_pb2.Any.FromString(resource.any).value)
    assert cluster.connect_timeout.seconds == 7, "the small patch is applied"
    assert "large" not in cluster.metadata.filter_metadata
    problems = world.value(envoy_filter_problems, ObjectKey("tenant", "large"))
    assert [(p.code, p.path) for p in problems] == [("too-large", "spec.configPatches[1].patch.value")]
    assert not world.failures


def test_small_patches_of_all_clusters_are_applied() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    patches = [_merge({"metadata": {"filter_metadata": {f"m{i}": {"text": "x" * 100}}}}) for i in range(20)]
    ports = [{"name": "http", "number": 80, "protocol": "HTTP"}]
    hosts = [f"h{i}.example.com" for i in range(256)]
    world.apply_objects(
        _object("ServiceEntry", "other", {"hosts": hosts, "resolution": "DNS", "ports": ports}),
        _object("EnvoyFilter", "tenant", {"configPatches": patches}),
    )
    world.resources(node)
    assert not world.value(envoy_filter_problems, ObjectKey("tenant", "large"))


def test_patches_of_many_routes_are_limited_and_reported() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    patch = {
        "applyTo": "HTTP_ROUTE",
        "patch": {"operation": "MERGE", "value": {"metadata": {"filter_metadata": {"a": {"b": "c"}}}}},
    }
    routes = [
        {"match": [{"uri": {"exact": f"/{n}"}}], "route": [{"destination": {"host": "a.example.com"}}]}
        for n in range(2000)
    ]
    ports = [{"name": "http", "number": 80, "protocol": "HTTP"}]
    world.apply_objects(
        _object("ServiceEntry", "tenant", {"hosts": ["a.example.com"], "resolution": "DNS", "ports": ports}),
        _object("VirtualService", "tenant", {"hosts": ["a.example.com"], "http": routes}),
        _object("EnvoyFilter", "tenant", {"configPatches": [patch] * 1000}),
    )
    world.resources(node)
    problems = world.value(envoy_filter_problems, ObjectKey("tenant", "large"))
    assert [(p.code, p.path) for p in problems] == [
        *(("too-large", f"spec.configPatches[{n}].patch.value") for n in range(25, 25 + MAX_PROBLEMS)),
        ("more-problems", ""),
    ]
    assert not world.failures


def test_patches_of_many_filter_chains_are_limited_and_reported() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    patch = {
        "applyTo": "FILTER_CHAIN",
        "match": {"context": "SIDECAR_INBOUND"},
        "patch": {"operation": "MERGE", "value": {"metadata": {"filter_metadata": {"a": {"b": "c"}}}}},
    }
    ingress = [
        {"port": {"number": 1000 + n, "name": f"p{n}", "protocol": "HTTP"}, "defaultEndpoint": "127.0.0.1:80"}
        for n in range(500)
    ]
    world.apply_objects(
        _object("Sidecar", "tenant", {"ingress": ingress}),
        _object("EnvoyFilter", "tenant", {"configPatches": [patch] * 1000}),
    )
    world.resources(node)
    problems = world.value(envoy_filter_problems, ObjectKey("tenant", "large"))
    assert [p.code for p in problems] == ["too-large"] * MAX_PROBLEMS + ["more-problems"]
    assert not world.failures


def test_patches_that_are_merged_into_one_cluster_are_limited_and_reported() -> None:
    """Each merge copies what earlier patches have merged."""
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    value = {"metadata": {"filter_metadata": {"a": {"b": "c" * 2000}}}}
    patch = {"applyTo": "CLUSTER", "match": {"context": "ANY"}, "patch": {"operation": "MERGE", "value": value}}
    world.apply_objects(_object("EnvoyFilter", "tenant", {"configPatches": [patch] * 400}))
    world.resources(node)
    problems = world.value(envoy_filter_problems, ObjectKey("tenant", "large"))
    first = min(int(p.path.partition("[")[2].partition("]")[0]) for p in problems if p.path)
    assert 100 < first < 200
    assert {p.code for p in problems} == {"too-large", "more-problems"}
