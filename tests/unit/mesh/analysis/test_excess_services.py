"""Kubernetes Services of a namespace that have too many ports together."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from testing.mesh.objects import endpoint_slice, make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World, rows_of

LIMIT = 20
"""The maximum number of ports, not counting two of each Service."""


def many_ports(name: str, ports: int, day: int) -> dict[str, Any]:
    listed = ", ".join(f"{{name: http-{n}, port: {n}}}" for n in range(1, ports + 1))
    return make("Service", name, f"{{clusterIP: 10.96.0.{day}, ports: [{listed}]}}", day=day)


def used(mesh: World, *names: str) -> list[int]:
    services = [service(mesh.mesh, ServiceRef(f"{name}.a.svc.cluster.local", "a")) for name in names]
    return [len(row.ports) for row in services if row is not None]


def reported(mesh: World) -> list[tuple[str, str]]:
    return sorted((p.object.name, p.path) for p in problems_of(mesh) if p.code == "too-many")


@pytest.fixture
def mesh() -> World:
    services = (many_ports(f"s{day}", 12, day) for day in (5, 4, 3))
    return world(*services, many_ports("small", 2, 9), PILOT_MAX_SERVICE_PORTS=str(LIMIT))


def test_newest_services_have_only_their_first_ports_beyond_the_limit(mesh: World) -> None:
    assert used(mesh, "s3", "s4", "s5", "small") == [12, 12, 2, 2]
    assert reported(mesh) == [("s5", "spec.ports")]
    (problem,) = (p for p in problems_of(mesh) if p.code == "too-many")
    assert "namespace a have more than 20 ports (PILOT_MAX_SERVICE_PORTS)" in problem.message


def test_ports_are_used_again_when_an_older_service_has_fewer(mesh: World) -> None:
    mesh.apply_objects(many_ports("s3", 2, 3))
    assert used(mesh, "s3", "s4", "s5") == [2, 12, 12]
    assert reported(mesh) == []


def test_ports_count_again_for_the_endpoints_of_a_service(mesh: World) -> None:
    mesh.apply_objects(endpoint_slice("s3", *(f"{{addresses: [10.1.0.{n}]}}" for n in range(1, 30))))
    assert used(mesh, "s3", "s4", "s5") == [2, 12, 12]
    assert reported(mesh) == [("s3", "spec.ports")]


def test_service_in_several_clusters_counts_once(mesh: World) -> None:
    mesh.set(rows_of([many_ports("s4", 12, 4)], "west"))
    assert used(mesh, "s3", "s4", "s5") == [12, 12, 2]
