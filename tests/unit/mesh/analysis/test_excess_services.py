"""Namespaces with too many Kubernetes Services, or with too many ports of them together."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.lib.xds_types import CLUSTER
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from testing.mesh.objects import endpoint_slice, make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World, proxy, rows_of

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


def one_port(name: str, day: int) -> dict[str, Any]:
    return make("Service", name, "{ports: [{port: 80}], selector: {app: a}}", day=day)


@pytest.fixture
def crowded() -> World:
    """A namespace with six Services of one port, where four are allowed."""
    return world(*(one_port(f"s{day}", day) for day in (6, 5, 4, 3, 2, 1)), PILOT_MAX_SERVICES="8")


def test_newest_services_beyond_the_limit_are_ignored(crowded: World) -> None:
    client = crowded.connect(proxy("sidecar", "client", "b", "10.1.0.1"))
    assert used(crowded, "s1", "s2", "s3", "s4", "s5", "s6") == [1, 1, 1, 1]
    assert {name for name in crowded.resources(client)[CLUSTER] if "|80|" in name} == {
        f"outbound|80||s{day}.a.svc.cluster.local" for day in (1, 2, 3, 4)
    }
    assert reported(crowded) == [("s5", "metadata.name"), ("s6", "metadata.name")]
    problem = next(p for p in problems_of(crowded) if p.code == "too-many")
    assert "namespace a has more than 8 Services and ports of Services (PILOT_MAX_SERVICES)" in problem.message


def test_services_are_used_again_when_an_older_one_is_deleted(crowded: World) -> None:
    crowded.set(dict.fromkeys(rows_of([one_port("s2", 2)])))
    assert used(crowded, "s5", "s6") == [1]
    assert reported(crowded) == [("s6", "metadata.name")]


def test_service_entry_for_the_host_of_an_ignored_service_is_used(crowded: World) -> None:
    host = "s6.a.svc.cluster.local"
    entry = f"{{hosts: [{host}], ports: [{{number: 90, name: http}}, {{number: 91, name: tcp}}], resolution: STATIC}}"
    crowded.apply_objects(make("ServiceEntry", "e", entry))
    server = crowded.connect(proxy("sidecar", "server", "a", "10.1.0.2", {"app": "a"}))
    (declared,) = [row for row in (service(crowded.mesh, ServiceRef(host, "a")),) if row is not None]
    assert [port.number for port in declared.ports] == [90, 91]
    assert "outbound|80||s5.a.svc.cluster.local" not in crowded.resources(server)[CLUSTER]
