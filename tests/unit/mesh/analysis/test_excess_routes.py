"""Routes of the Gateway API that are attached to too many listeners together."""

from __future__ import annotations

from typing import Any

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.mesh.lowering.gateway_api.http_services import MAX_PARTS, MAX_RULES
from testing.mesh.problems import problems_of
from testing.mesh.world import World

API = "gateway.networking.k8s.io/v1"


def _object(kind: str, name: str, namespace: str, created: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": f"2025-01-{created}T00:00:00Z"}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def _route(name: str, namespace: str, created: str, hosts: int, rules: int = 1) -> dict[str, Any]:
    spec = {
        "parentRefs": [{"name": "front", "namespace": "edge"}],
        "hostnames": [f"h{n}.{name}.example.com" for n in range(hosts)],
        "rules": [{"backendRefs": [{"name": "s", "port": 80}]}] * rules,
    }
    return _object("HTTPRoute", name, namespace, created, spec)


def test_newest_routes_of_a_namespace_are_ignored_beyond_the_limit() -> None:
    world = World()
    listeners = [
        {"name": f"l{n}", "port": 1000 + n, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
        for n in range(60)
    ]
    gateway = _object("Gateway", "front", "edge", "01", {"gatewayClassName": "istio", "listeners": listeners})
    hosts = MAX_PARTS // 60 // 2
    world.apply_objects(
        gateway,
        _route("first", "tenant", "02", hosts),
        _route("third", "tenant", "04", hosts),
        _route("second", "tenant", "03", hosts),
        _route("honest", "other", "05", hosts),
    )
    problems = [problem for problem in problems_of(world) if problem.code == "too-large"]
    assert [(p.object.kind.name, p.object.namespace, p.object.name, p.path) for p in problems] == [
        ("HTTPRoute", "tenant", "third", "spec.parentRefs")
    ]
    hosts_used = {
        row.spec.hosts[0].split(".")[1]
        for key in VIRTUAL_SERVICE.all_keys(world.mesh)
        if (row := VIRTUAL_SERVICE.get(world.mesh, key)) is not None
    }
    assert hosts_used == {"first", "second", "honest"}
    assert not world.failures


def test_newest_routes_with_many_rules_are_ignored_beyond_the_limit() -> None:
    world = World()
    listeners = [
        {"name": f"l{n}", "port": 1000 + n, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
        for n in range(64)
    ]
    rules = MAX_RULES // 64 // 2 // 16
    world.apply_objects(
        _object("Gateway", "front", "edge", "01", {"gatewayClassName": "istio", "listeners": listeners}),
        *(_route(f"r{n}", "tenant", f"{n + 10}", 16, rules) for n in range(3)),
    )
    problems = [problem for problem in problems_of(world) if problem.code == "too-large"]
    assert [(p.object.name, p.path) for p in problems] == [("r2", "spec.parentRefs")]
    assert not world.failures
