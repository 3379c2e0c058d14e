"""Services and ServiceEntries of a namespace that select too many workloads together."""

from __future__ import annotations

from typing import Any

from pilot.config.networking.service_entry import CLUSTER_ENDPOINTS, PORT_ENDPOINTS, WORKLOAD_ENDPOINTS
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from testing.mesh.objects import make, pod, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World

WORKLOADS = 5


def workload(number: int, labels: str = "{app: vm}") -> dict[str, Any]:
    return make("WorkloadEntry", f"w{number}", f"{{address: 192.0.2.{number + 1}, labels: {labels}}}")


def entry(name: str, day: int, labels: str = "{app: vm}") -> dict[str, Any]:
    ports = "[{number: 80, name: http, protocol: HTTP}]"
    spec = (
        f"{{hosts: [{name}.example.com], ports: {ports}, resolution: STATIC, workloadSelector: {{labels: {labels}}}}}"
    )
    return make("ServiceEntry", name, spec, day=day)


def service(name: str, day: int) -> dict[str, Any]:
    ports = "[{name: http, port: 80}, {name: grpc, port: 81}]"
    return make("Service", name, f"{{clusterIP: 10.96.0.{day}, selector: {{app: vm}}, ports: {ports}}}", day=day)


def reported(mesh: World) -> list[tuple[str, str, str]]:
    return sorted((p.object.name, p.code, p.path) for p in problems_of(mesh) if p.code.startswith("too-"))


def count(mesh: World, host: str) -> int:
    return len(endpoints(mesh.mesh, ServiceRef(host, "a"), 80))


def test_entries_that_select_too_many_workloads_are_ignored() -> None:
    limit = PORT_ENDPOINTS + 2 * CLUSTER_ENDPOINTS + 2 * WORKLOADS * WORKLOAD_ENDPOINTS
    mesh = world(
        *(workload(number) for number in range(WORKLOADS)),
        *(entry(name, day) for day, name in enumerate(("first", "second", "third"), 1)),
        PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(limit),
    )
    assert [count(mesh, f"{name}.example.com") for name in ("first", "second", "third")] == [5, 5, 0]
    assert reported(mesh) == [("third", "too-large", "spec.hosts")]
    mesh.apply_objects(workload(0, "{app: other}"))
    assert [count(mesh, f"{name}.example.com") for name in ("first", "second")] == [4, 4]
    mesh.apply_objects(pod("p", "10.0.0.1", labels="{app: vm}"), pod("q", "10.0.0.2", labels="{app: vm}"))
    assert reported(mesh) == [("second", "too-large", "spec.hosts"), ("third", "too-large", "spec.hosts")]


def test_rarest_label_limits_the_number_of_selected_workloads() -> None:
    limit = PORT_ENDPOINTS + CLUSTER_ENDPOINTS + WORKLOAD_ENDPOINTS
    mesh = world(
        *(workload(number, f"{{app: vm, version: v{number}}}") for number in range(WORKLOADS)),
        entry("one", 1, "{app: vm, version: v1, topology.istio.io/cluster: Kubernetes}"),
        PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(limit),
    )
    assert reported(mesh) == []
    assert count(mesh, "one.example.com") == 1


def test_services_beyond_the_limit_select_no_workload_entries() -> None:
    limit = 2 * WORKLOADS * WORKLOAD_ENDPOINTS
    mesh = world(
        *(workload(number) for number in range(WORKLOADS)),
        service("old", 1),
        service("new", 2),
        PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(limit),
    )
    assert [count(mesh, f"{name}.a.svc.cluster.local") for name in ("old", "new")] == [5, 0]
    assert reported(mesh) == [("new", "too-many", "spec.selector")]
