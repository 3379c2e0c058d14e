"""VirtualServices of a namespace that have too many hosts without a service."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3 import route_pb2

from pilot.lib.xds_types import ROUTE
from pilot.mesh.traffic.excess_hosts import MAX_HOSTS
from testing.mesh.objects import make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy

HTTP = "[{route: [{destination: {host: api.a.svc.cluster.local}}]}]"


def virtual_service(name: str, day: int, hosts: int, *more: str) -> dict[str, Any]:
    names = ", ".join((*more, *(f"h{n}.{name}.example.com" for n in range(hosts))))
    return make("VirtualService", name, f"{{hosts: [{names}], http: {HTTP}}}", day=day)


def test_newest_virtual_services_have_only_hosts_of_services_beyond_the_limit() -> None:
    mesh = world(
        make("Service", "api", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}"),
        virtual_service("old", 1, MAX_HOSTS - 1),
        virtual_service("new", 2, 2, "api"),
        virtual_service("small", 3, 1),
    )
    node_id = mesh.connect(proxy("sidecar", "web", "b", "10.0.0.1"))
    pieces = mesh.resources(node_id)[ROUTE]["80"].message_pieces
    routes = route_pb2.RouteConfiguration.FromString(b"".join(pieces))
    names = {host.name.partition(".")[2] for host in routes.virtual_hosts if "example.com" in host.name}
    assert names == {"old.example.com:80", "small.example.com:80"}
    assert any(host.name == "api.a.svc.cluster.local:80" for host in routes.virtual_hosts)
    problems = [(p.object.name, p.path) for p in problems_of(mesh) if p.code == "too-many"]
    assert problems == [("new", "spec.hosts")]


def test_hosts_of_excess_virtual_services_are_not_checked_one_by_one() -> None:
    mesh = world(virtual_service("old", 1, MAX_HOSTS), virtual_service("new", 2, 1000))
    problems_of(mesh)
    runs: list[Any] = []
    mesh.mesh.on_run = runs.append
    mesh.apply_objects(virtual_service("newer", 3, 1000))
    assert {p.object.name for p in problems_of(mesh) if p.code == "too-many"} == {"new", "newer"}
    assert len(runs) < 200
