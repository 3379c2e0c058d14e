"""Derives the route configurations of gateways: one for the plain HTTP servers of a port, one for each HTTPS server.

Every virtual host is a value of its own, put together from the serialized routes of its VirtualServices, and a configuration from
its serialized virtual hosts: an edit of one VirtualService builds its routes and its virtual hosts, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3 import route_components_pb2

from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.envoy.http_filter.prebuilt_http_filters import STATEFUL_SESSION_FILTER
from pilot.envoy.names import gateway_routes, gateway_tls_routes
from pilot.envoy.resource import Resource, length_delimited
from pilot.envoy.route.gateway.gateway_host_plan import BoundVirtualService, GatewayHostKey, ServerHosts, plan_hosts
from pilot.envoy.route.gateway.gateway_route_sources import RouteBytes, RouterContextKey, host_session, source_routes
from pilot.envoy.route.route_configuration import build_route_configuration, virtual_host_field
from pilot.envoy.route.sticky_session import StickySession, build_sticky_session
from pilot.envoy.route.virtual_service_routes import has_routes
from pilot.mesh.gateways.gateways import merged_gateway, server
from pilot.mesh.gateways.servers import GatewayRouteKey, MergedGateway, ServerKey
from pilot.mesh.proxies.router import GatewayRoutesFacet, bound_services
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import virtual_service

BLOCK = 64
"""Virtual hosts that are put together in one piece of a route configuration."""

_ROUTES = route_components_pb2.VirtualHost.ROUTES_FIELD_NUMBER


def route_name(key: GatewayRouteKey) -> str:
    """Returns the name by which listeners ask for a route configuration."""
    if key.gateway is None:
        return gateway_routes(key.port, key.bind)
    return gateway_tls_routes(key.port, key.port_name, key.gateway.name, key.gateway.namespace, key.bind)


# -- which virtual hosts ---------------------------------------------------------------------------


@derived
def _route_keys(db: Mesh, routing: GatewayRoutesFacet) -> tuple[GatewayRouteKey, ...]:
    return tuple(key for key, _ in merged_gateway(db, routing.selected).routes)


@derived
def _servers(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> tuple[ServerHosts, ...]:
    """Returns the servers that share a route configuration."""
    merged: MergedGateway = merged_gateway(db, routing.selected)
    keys = next((keys for other, keys in merged.routes if other == key), ())
    return tuple(s for key in keys if (s := _server_hosts(db, key)) is not None)


def _server_hosts(db: Mesh, key: ServerKey) -> ServerHosts | None:
    found = server(db, key)
    if found is None or found.port is None:
        return None
    return ServerHosts(
        key.gateway,
        found.hosts,
        found.port.number,
        found.tls is not None,
        found.tls is not None and found.tls.https_redirect,
    )


@derived
def _bound_keys(
    db: Mesh, gateway: ObjectKey, _ports: frozenset[int], routing: GatewayRoutesFacet
) -> tuple[ObjectKey, ...]:
    return bound_services(db, routing.scope.namespace, gateway)


@derived
def _bound(
    db: Mesh, key: ObjectKey, gateway: ObjectKey, ports: frozenset[int], routing: GatewayRoutesFacet
) -> BoundVirtualService | None:
    """Returns a VirtualService that has routes for one of the ports; None where it has none."""
    found = virtual_service(db, key)
    if found is None:
        return None
    names, namespace = frozenset((f"{gateway.namespace}/{gateway.name}",)), routing.scope.namespace
    routed = frozenset(port for port in ports if has_routes(found.spec, port, names, namespace, routing.sources))
    return BoundVirtualService(key, found.spec.hosts, routed) if routed else None


_bound_services: Gather[ObjectKey, [ObjectKey, frozenset[int], GatewayRoutesFacet], BoundVirtualService] = Gather(
    "bound_to_gateway", _bound_keys, _bound
)


@hub
def planned_hosts(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> tuple[GatewayHostKey, ...]:
    """Returns the virtual hosts of a route configuration, by name."""
    servers = _servers(db, key, routing)
    if not servers:
        return ()
    ports: dict[ObjectKey, set[int]] = {}
    for s in servers:
        ports.setdefault(s.gateway, set()).add(s.port)
    bound = {gateway: _bound_services(db, gateway, frozenset(of), routing).values() for gateway, of in ports.items()}
    return plan_hosts(servers, bound, db.settings.gateways.collapse_routes)


# -- their content ---------------------------------------------------------------------------------


@derived
def _advertises(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> bool:
    """Returns whether the answers of a route configuration tell of HTTP/3."""
    return key in merged_gateway(db, routing.selected).http3


@derived
def _virtual_host(db: Mesh, planned: GatewayHostKey, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> bytes | None:
    """Returns one virtual host, as the field of its configuration."""
    offer = RouterContextKey(
        routing.scope, routing.labels, routing.sources, routing.forwarded_host, _advertises(db, key, routing)
    )
    routes = [route for source in planned.sources for route in source_routes(db, source, offer)]
    session = host_session(db, planned.domains[0], planned.sources[0], offer) if planned.sources else None
    return virtual_host_field(build_gateway_host(planned, routes, routing.attempt_count, session))


def build_gateway_host(
    planned: GatewayHostKey, routes: Iterable[RouteBytes], attempt_count: bool, session: StickySession | None = None
) -> bytes:
    """Returns the serialized virtual host of serialized routes; those that take everything come last, for none behind one would ever be
    tried."""
    host = route_components_pb2.VirtualHost(
        name=planned.name,
        domains=planned.domains,
        require_tls=route_components_pb2.VirtualHost.ALL
        if planned.redirects
        else route_components_pb2.VirtualHost.NONE,
        include_request_attempt_count=attempt_count and bool(planned.sources or planned.redirects),
    )
    if session is not None:
        host.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(build_sticky_session(session))
    last = sorted(routes, key=lambda route: route.catch_all)
    return b"".join(
        (host.SerializeToString(deterministic=True), *(length_delimited(_ROUTES, route.route) for route in last))
    )


@derived
def _blocks(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> tuple[int, ...]:
    return tuple(range(-(-len(planned_hosts(db, key, routing)) // BLOCK)))


@hub
def _planned_block(
    db: Mesh, number: int, key: GatewayRouteKey, routing: GatewayRoutesFacet
) -> tuple[GatewayHostKey, ...]:
    return planned_hosts(db, key, routing)[number * BLOCK : (number + 1) * BLOCK]


_virtual_hosts: Gather[GatewayHostKey, [int, GatewayRouteKey, GatewayRoutesFacet], bytes] = Gather(
    "gateway_virtual_hosts", _planned_block, _virtual_host, passed=lambda number, *args: args
)


@derived
def _block(db: Mesh, number: int, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> bytes | None:
    """Returns neighbouring virtual hosts in one piece: an edit puts one of many together anew, and not all virtual hosts there are."""
    return b"".join(_virtual_hosts(db, number, key, routing).values())


_pieces: Gather[int, [GatewayRouteKey, GatewayRoutesFacet], bytes] = Gather(
    "gateway_virtual_hosts_in_blocks", _blocks, _block
)


@derived
def _route_configuration(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> Resource | None:
    return build_route_configuration(route_name(key), _pieces(db, key, routing).values())


gateway_route_configurations: Gather[GatewayRouteKey, [GatewayRoutesFacet], Resource] = Gather(
    "gateway_routes", _route_keys, _route_configuration
)
