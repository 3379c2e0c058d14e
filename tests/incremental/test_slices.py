"""The configuration of a proxy for many services is computed in slices, and no derivation starts again after a slice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pilot.derive import Derived, Node, Paused
from pilot.envoy.listener.outbound.outbound_listeners import listener_addresses
from pilot.envoy.route.sidecar.route_layout import refs_by_port, route_layout
from pilot.envoy.route.sidecar.segment import SegmentKey, segment_dependencies, segment_domains, segment_hosts
from pilot.envoy.route.sidecar.sidecar_route_configurations import segment_bytes, sidecar_routes
from pilot.lib.xds_types import LISTENER, ROUTE
from testing.edits.mesh_edits import snapshot
from testing.mesh.objects import make
from testing.mesh.world import World, proxy, rows_of

LONG: tuple[Derived[Any, Any], ...] = (
    listener_addresses,
    refs_by_port,
    segment_hosts,
    segment_domains,
    segment_dependencies,
    segment_bytes,
    route_layout,
    sidecar_routes,
)
"""Derivations that read a value of each service, or of each host of a VirtualService."""
SERVICES, CALLS = 600, 40


def slice_of(calls: int) -> Callable[[], bool]:
    numbers = itertools.count(1)
    return lambda: next(numbers) % calls == 0


def make_world() -> World:
    hosts = ", ".join(f"h{n}.example.com" for n in range(SERVICES // 6))
    ports = "[{number: 80, protocol: HTTP, name: http}]"
    world = World()
    for n in range(6):
        names = hosts.replace("example.com", f"e{n}.example.com")
        world.set(rows_of([make("ServiceEntry", f"e{n}", f"{{hosts: [{names}], resolution: STATIC, ports: {ports}}}")]))
    unknown = hosts.replace("example.com", "unknown.example.com")
    route = "[{route: [{destination: {host: h0.e0.example.com}}]}]"
    world.set(rows_of([make("VirtualService", "v", f"{{hosts: [{unknown}], http: {route}}}")]))
    return world


def test_long_derivations_are_continued_after_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: Counter[str] = Counter()
    for derivation in LONG:

        def counted(db: Any, *args: Any, derivation: Any = derivation, compute: Any = derivation.compute) -> Any:
            starts[derivation.__name__] += 1
            return compute(db, *args)

        monkeypatch.setattr(derivation, "compute", counted)
    world = make_world()
    node_id = world.connect(proxy("sidecar", "c0", "default", "10.2.0.1"))
    runs: Counter[str] = Counter()
    slices: list[int] = []

    def count_run(node: Node) -> None:
        runs[node.fn.__name__] += 1
        slices[-1] += 1

    world.mesh.on_run = count_run
    while True:
        slices.append(0)
        try:
            with world.mesh.pausing(slice_of(CALLS)):
                result = snapshot(world, [node_id])[node_id]
        except Paused:
            continue
        break
    assert len(slices) > 3 * SERVICES // CALLS
    restarts = {name: starts[name] - runs[name] for name in starts}
    assert max(restarts.values()) <= 2, f"none starts again after its first step: {restarts}"
    assert runs["virtual_host"] - SERVICES // 6 == runs["service_hosts"] == SERVICES
    assert result[LISTENER]
    assert b"h1.e3.example.com" in result[ROUTE]["80"]
    assert b"h1.unknown.example.com" in result[ROUTE]["80"]


def test_conflicts_of_many_hosts_are_resolved_in_steps() -> None:
    names = ", ".join(f"h{n}.example.com" for n in range(100))
    ports = "[{number: 80, protocol: HTTP, name: http}]"
    world = World()
    spec = f"{{hosts: [{names}], addresses: [192.0.2.9], resolution: STATIC, ports: {ports}}}"
    world.set(rows_of([make("ServiceEntry", "e", spec)]))
    hosts = ", ".join(f"h{n}.example.com" for n in range(100, 150))
    route = f"{{hosts: [{hosts}], http: [{{route: [{{destination: {{host: h0.example.com}}}}]}}]}}"
    world.set(rows_of([make("VirtualService", "v", route)]))
    node_id = world.connect(proxy("sidecar", "c0", "default", "10.2.0.1"))
    assert snapshot(world, [node_id])[node_id][ROUTE]
    for node in list(world.mesh.nodes_of(route_layout)):
        layout = node.value
        steps = sum(1 for _ in route_layout.compute(world.mesh, *node.args))
        assert len(layout.dropped_domains) == 99, "the hosts share an address"
        assert len(layout.virtual_service_hosts) == 50
        assert steps >= 150, "a step for each host"


def test_equal_services_are_not_compared_for_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VirtualService changes the layout. It is compared with the previous one, but each segment only once."""
    world = make_world()
    node_id = world.connect(proxy("sidecar", "c0", "default", "10.2.0.1"))
    snapshot(world, [node_id])
    compared = 0

    class Refs(tuple[Any, ...]):
        __hash__ = tuple.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple(self) == other

    monkeypatch.setattr(
        "pilot.envoy.route.sidecar.route_layout.SegmentKey", lambda refs, *rest: SegmentKey(Refs(refs), *rest)
    )
    route = "{hosts: [h1.e1.example.com], http: [{route: [{destination: {host: h2.e2.example.com}}]}]}"
    for name in ("v", "w"):
        world.set(rows_of([make("VirtualService", name, route)]))
        assert snapshot(world, [node_id])[node_id][ROUTE]
    assert compared < SERVICES / 10
