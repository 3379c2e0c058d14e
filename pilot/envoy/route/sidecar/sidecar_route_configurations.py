"""Derives the outbound route configurations of sidecars.

A configuration is a concatenation of segments, and a segment is a concatenation of virtual hosts. After an edit to one
VirtualService, one virtual host is built, and its segment and configuration are joined again. Nothing else is parsed,
built or compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pilot.config.protocol import Protocol, parse_protocol
from pilot.derive import Steps, derived, derived_in_steps
from pilot.envoy.names import HTTP_PROXY
from pilot.envoy.resource import Resource
from pilot.envoy.route.route_configuration import build_route_configuration, virtual_host_field
from pilot.envoy.route.sidecar.catch_all import build_catch_all
from pilot.envoy.route.sidecar.domains import without_namespace
from pilot.envoy.route.sidecar.route_layout import RouteLayoutKey, refs_by_port, route_layout
from pilot.envoy.route.sidecar.segment import SegmentKey, host_dependencies, segment_dependencies, segment_hosts
from pilot.envoy.route.sidecar.segment_traits import (
    SegmentTraits,
    SegmentTraitsKey,
    build_segment_traits,
    segment_traits,
    virtual_host_key,
)
from pilot.envoy.route.sidecar.sidecar_virtual_host import virtual_host
from pilot.mesh.proxies.sidecar_routing import SidecarRoutesFacet
from pilot.mesh.scope.sidecar_scope import EgressListener, egress_listeners, outbound_traffic_policy
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import egress_services
from pilot.mesh.traffic.virtual_services import ViewerKey, viewers

UNIX = "unix://"


# -- names -----------------------------------------------------------------------------------------


def parse_route_name(name: str) -> tuple[str, int] | None:
    """Return the host and port in the name of a route configuration, or None if the name has another form.

    The name `80` has no host. The name `host:80` stands for the routes of one service with protocol detection. The port
    is 0 for `http_proxy` and Unix sockets.
    """
    if name == HTTP_PROXY or name.startswith(UNIX):
        return "", 0
    host, _, port = name.rpartition(":")
    return (host, int(port)) if port.isascii() and port.isdecimal() else None


def find_egress_listener(listeners: Iterable[EgressListener], name: str, port: int) -> int | None:
    """Return the index of the egress listener for a route configuration, or None if there is none.

    It is the first listener that either has the port or socket, or serves all ports.
    """
    for index, listener in enumerate(listeners):
        if listener.port is None or (listener.port.number == port and (port or listener.bind == name)):
            return index
    return None


# -- configurations --------------------------------------------------------------------------------


@derived_in_steps
def sidecar_routes(db: Mesh, name: str, routing: SidecarRoutesFacet) -> Steps[Resource | None]:
    """Return the route configuration with this name, or None if this is not a valid name of a route configuration."""
    host_and_port = parse_route_name(name)
    if host_and_port is None:
        return None
    host, port = host_and_port
    index = find_egress_listener(egress_listeners(db, routing.scope), name, port)
    if index is None:
        return build_route_configuration(name, (catch_all(db, routing),))
    yield layout_key.step(routing, index, port)
    key = layout_key(db, routing, index, port)
    yield route_layout.step(key)
    if host:
        return build_route_configuration(name, single_service_host(db, key, host, routing))
    virtual_hosts = yield from _virtual_hosts(db, key, routing)
    return build_route_configuration(name, (*virtual_hosts, catch_all(db, routing)))


@derived_in_steps
def layout_key(db: Mesh, routing: SidecarRoutesFacet, index: int, port: int) -> Steps[RouteLayoutKey]:
    """Return the key of the layout for a port of an egress listener."""
    listener = egress_listeners(db, routing.scope)[index]
    if listener.port is not None and parse_protocol(listener.port.protocol) is Protocol.HTTP_PROXY:
        port = 0
    namespace = routing.scope.namespace
    viewer = ViewerKey(namespace, listener.hosts)
    if listener.hosts.everything:
        viewer = ViewerKey(namespace if namespace in viewers(db) else "")
    imports = egress_services(db, routing.scope, index)
    yield None  # hashing thousands of imports takes a few milliseconds
    refs = refs_by_port(db, imports).get(port, ())
    yield None
    return RouteLayoutKey(
        refs, port, viewer, without_namespace(routing.dns_domain) if port else routing.dns_domain, routing.families
    )


def _virtual_hosts(db: Mesh, key: RouteLayoutKey, routing: SidecarRoutesFacet) -> Steps[list[bytes]]:
    layout = route_layout(db, key)
    fields: list[bytes] = []
    shared_traits: dict[str, SegmentTraitsKey] = {}
    for segment in layout.segments:
        yield segment_dependencies.step(segment)
        shared = segment_traits(db, segment, layout, routing, shared_traits)
        yield segment_bytes.step(segment, shared)
        fields.append(segment_bytes(db, segment, shared))
    for host in layout.virtual_service_hosts:
        dependencies = host_dependencies(db, host)
        dropped_domains = layout.dropped_domains.get((host.host, host.port), ())
        traits = build_segment_traits(
            db,
            dependencies,
            key.dns_domain,
            (((host.host, host.port), dropped_domains),) if dropped_domains else (),
            layout,
            routing,
        )
        host_key = virtual_host_key(host, dependencies, key.port, SegmentTraits.of(traits))
        yield virtual_host.step(host_key)
        fields.append(virtual_host(db, host_key))
    return fields


@derived_in_steps
def segment_bytes(db: Mesh, segment: SegmentKey, traits: SegmentTraitsKey) -> Steps[bytes]:
    """Return the virtual hosts of a segment, encoded as fields of a route configuration."""
    fields: list[bytes] = []
    shared = SegmentTraits.of(traits)
    for host in segment_hosts(db, segment):
        key = virtual_host_key(host, host_dependencies(db, host), segment.port, shared)
        yield virtual_host.step(key)
        fields.append(virtual_host(db, key))
    return b"".join(fields)


def single_service_host(db: Mesh, key: RouteLayoutKey, hostname: str, routing: SidecarRoutesFacet) -> Iterable[bytes]:
    """Return the virtual host of one service, which matches any domain.

    The listener has only the addresses of this service, so the Host header need not be checked.
    """
    layout = route_layout(db, key)
    number = layout.segment_numbers.get(hostname)
    if number is None:
        return
    segment = layout.segments[number]
    traits = SegmentTraits.of(segment_traits(db, segment, layout, routing, {}))
    for host in segment_hosts(db, segment):
        if host.ref is not None and host.ref.hostname == hostname:
            yield virtual_host(
                db,
                replace(
                    virtual_host_key(host, host_dependencies(db, host), key.port, traits),
                    any_domain=True,
                    dropped_domains=(),
                ),
            )


@derived
def catch_all(db: Mesh, routing: SidecarRoutesFacet) -> bytes:
    """Return the virtual host for unknown hosts, encoded as a field of a route configuration."""
    policy = outbound_traffic_policy(db, routing.scope)
    return virtual_host_field(
        build_catch_all(policy, routing.attempt_count, routing.forwarded_host).SerializeToString(deterministic=True)
    )
