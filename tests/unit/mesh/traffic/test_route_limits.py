"""Routes of a VirtualService that would be copied to too many ports."""

from __future__ import annotations

from typing import Any

from pilot.config.object import ObjectKey
from pilot.lib.xds_types import LISTENER, ROUTE
from pilot.mesh.analysis.virtual_service import virtual_service_problems
from testing.mesh.world import World, proxy

HOST = "s.tenant.svc.cluster.local"
DESTINATION = [{"destination": {"host": HOST, "port": {"number": 8000}}}]


def _object(kind: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": "large", "namespace": "tenant"}
    return {"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _service(ports: int, protocol: str) -> dict[str, Any]:
    spec = {
        "clusterIP": "10.96.0.1",
        "ports": [{"name": f"{protocol}-{n}", "port": 8000 + n, "protocol": "TCP"} for n in range(ports)],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "tenant"}, "spec": spec}


def _gateway(ports: int, protocol: str, **server: Any) -> dict[str, Any]:
    return _object(
        "Gateway",
        {
            "selector": {"istio": "ingress"},
            "servers": [
                {
                    "port": {"number": 1000 + n, "name": f"p{n}", "protocol": protocol},
                    "hosts": ["*.example.com"],
                    **server,
                }
                for n in range(ports)
            ],
        },
    )


def _http(count: int) -> list[dict[str, Any]]:
    return [{"match": [{"uri": {"exact": f"/{n}"}}], "route": DESTINATION} for n in range(count)]


def _problems(world: World) -> list[tuple[str, str, str]]:
    problems = world.value(virtual_service_problems, ObjectKey("tenant", "large"))
    assert not world.failures
    return [(problem.code, problem.path, problem.message) for problem in problems]


def test_http_routes_are_used_on_the_first_ports_of_a_service() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    world.apply_objects(_service(20, "http"), _object("VirtualService", {"hosts": [HOST], "http": _http(3000)}))
    routes = world.resources(node)[ROUTE]
    assert routes["8009"].size > 1_000_000
    assert routes["8010"].size < 10_000
    text = "3000 routes on 20 ports exceed 32768 routes in total; they are only used on the first 10 ports"
    assert _problems(world) == [("too-large", "spec.http", text)]


def test_http_routes_are_used_on_the_first_ports_of_a_gateway() -> None:
    world = World()
    node = world.connect(proxy("router", "edge", "tenant", "10.0.0.1", {"istio": "ingress"}))
    spec = {"hosts": ["*.example.com"], "gateways": ["large"], "http": _http(3000)}
    world.apply_objects(_service(1, "http"), _gateway(20, "HTTP"), _object("VirtualService", spec))
    routes = world.resources(node)[ROUTE]
    assert routes["http.1009"].size > 1_000_000
    assert routes["http.1010"].size < 10_000
    assert [problem[:2] for problem in _problems(world)] == [("too-large", "spec.http")]


def test_tcp_routes_have_a_limited_number_of_filter_chains() -> None:
    world = World()
    node = world.connect(proxy("sidecar", "a", "tenant", "10.0.0.1"))
    routes = [
        {"match": [{"destinationSubnets": [f"10.{n >> 8}.{n & 255}.0/24"]}], "route": DESTINATION} for n in range(1000)
    ]
    world.apply_objects(_service(100, "tcp"), _object("VirtualService", {"hosts": [HOST], "tcp": routes}))
    assert sum(resource.size for resource in world.resources(node)[LISTENER].values()) < 4_000_000
    text = "1000 matches on 100 ports exceed 8192 filter chains in total; only the first 81 are used on each port"
    assert _problems(world) == [("too-large", "spec.tcp", text)]


def test_tls_routes_of_a_gateway_have_a_limited_number_of_filter_chains() -> None:
    world = World()
    node = world.connect(proxy("router", "edge", "tenant", "10.0.0.1", {"istio": "ingress"}))
    routes = [{"match": [{"sniHosts": [f"h{n}.example.com"]}], "route": DESTINATION} for n in range(1000)]
    spec = {"hosts": ["*.example.com"], "gateways": ["large"], "tls": routes}
    gateway = _gateway(100, "TLS", tls={"mode": "PASSTHROUGH"})
    world.apply_objects(_service(1, "tcp"), gateway, _object("VirtualService", spec))
    assert sum(resource.size for resource in world.resources(node)[LISTENER].values()) < 4_000_000
    assert [problem[:2] for problem in _problems(world)] == [("too-large", "spec.tls")]
