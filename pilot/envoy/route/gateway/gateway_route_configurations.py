"""Derives the route configurations of gateways. Plaintext HTTP servers share one per port, and each HTTPS server has
its own.

Each virtual host is assembled from the serialized routes of its VirtualServices, and each configuration from its
serialized virtual hosts. After an edit to one VirtualService, only its own routes and virtual hosts are rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from envoy.config.route.v3 import route_components_pb2

from pilot.config.object import ObjectKey
from pilot.derive import Gather, Steps, derived, hub, hub_in_steps
from pilot.envoy.http_filter.prebuilt_http_filters import STATEFUL_SESSION_FILTER
from pilot.envoy.names import gateway_routes, gateway_tls_routes
from pilot.envoy.resource import Resource
from pilot.envoy.route.gateway.gateway_host_plan import (
    BoundVirtualService,
    GatewayHostKey,
    ServerHosts,
    plan_hosts_in_steps,
)
from pilot.envoy.route.gateway.gateway_route_sources import RouterContextKey, SourceRoutes, host_session, source_routes
from pilot.envoy.route.route_configuration import build_route_configuration, virtual_host_field
from pilot.envoy.route.sticky_session import StickySession, build_sticky_session
from pilot.envoy.route.virtual_service_routes import has_routes
from pilot.mesh.gateways.gateways import merged_gateway, server
from pilot.mesh.gateways.servers import GatewayRouteKey, GatewaySelectionKey, ServerKey
from pilot.mesh.proxies.router import GatewayRoutesFacet, bound_services
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import virtual_service

BLOCK = 64
"""Number of virtual hosts in one block of a route configuration."""


def route_name(key: GatewayRouteKey) -> str:
    """Return the name by which listeners request a route configuration."""
    if key.gateway is None:
        return gateway_routes(key.port, key.bind)
    return gateway_tls_routes(key.port, key.port_name, key.gateway.name, key.gateway.namespace, key.bind)


# -- plan ------------------------------------------------------------------------------------------


@derived
def _route_keys(db: Mesh, routing: GatewayRoutesFacet) -> tuple[GatewayRouteKey, ...]:
    return tuple(key for key, _ in merged_gateway(db, routing.selected).routes)


@derived
def _servers_by_route(db: Mesh, selected: GatewaySelectionKey) -> Mapping[GatewayRouteKey, tuple[ServerKey, ...]]:
    return dict(merged_gateway(db, selected).routes)


@derived
def _servers(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> tuple[ServerHosts, ...]:
    """Return the servers that share a route configuration."""
    keys = _servers_by_route(db, routing.selected).get(key, ())
    return tuple(s for key in keys if (s := _server_hosts(db, key)) is not None)


def _server_hosts(db: Mesh, key: ServerKey) -> ServerHosts | None:
    server_spec = server(db, key)
    if server_spec is None or server_spec.port is None:
        return None
    return ServerHosts(
        key.gateway,
        server_spec.hosts,
        server_spec.port.number,
        server_spec.tls is not None,
        server_spec.tls is not None and server_spec.tls.https_redirect,
    )


@derived
def _bound_keys(
    db: Mesh, gateway: ObjectKey, _ports: frozenset[int], routing: GatewayRoutesFacet
) -> tuple[ObjectKey, ...]:
    return bound_services(db, routing.scope.namespace, gateway)


@derived
def _bound_virtual_service(
    db: Mesh, key: ObjectKey, gateway: ObjectKey, ports: frozenset[int], routing: GatewayRoutesFacet
) -> BoundVirtualService | None:
    """Return a VirtualService that is bound to a Gateway, or None if it has no routes for any of the ports."""
    row = virtual_service(db, key)
    if row is None:
        return None
    names, namespace = frozenset((f"{gateway.namespace}/{gateway.name}",)), routing.scope.namespace
    routed_ports = frozenset(port for port in ports if has_routes(row.spec, port, names, namespace, routing.sources))
    return BoundVirtualService(key, row.spec.hosts, routed_ports) if routed_ports else None


_bound_services: Gather[ObjectKey, [ObjectKey, frozenset[int], GatewayRoutesFacet], BoundVirtualService] = Gather(
    "bound_to_gateway", _bound_keys, _bound_virtual_service
)


@hub_in_steps
def gateway_host_keys(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> Steps[tuple[GatewayHostKey, ...]]:
    """Return the virtual hosts in a route configuration, sorted by name."""
    servers = _servers(db, key, routing)
    if not servers:
        return ()
    ports: dict[ObjectKey, set[int]] = {}
    for s in servers:
        ports.setdefault(s.gateway, set()).add(s.port)
    virtual_services = {
        gateway: _bound_services(db, gateway, frozenset(gateway_ports), routing).values()
        for gateway, gateway_ports in ports.items()
    }
    return (yield from plan_hosts_in_steps(servers, virtual_services, db.settings.gateways.collapse_routes))


# -- virtual hosts ---------------------------------------------------------------------------------


@derived
def _advertises_http3(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> bool:
    """Return whether responses advertise HTTP/3."""
    return key in merged_gateway(db, routing.selected).http3


@derived
def _virtual_host(
    db: Mesh, host_key: GatewayHostKey, key: GatewayRouteKey, routing: GatewayRoutesFacet
) -> bytes | None:
    """Return one virtual host, encoded as a field of its route configuration."""
    router = RouterContextKey(
        routing.scope, routing.labels, routing.sources, routing.forwarded_host, _advertises_http3(db, key, routing)
    )
    routes = [source_routes(db, source, router) for source in host_key.sources]
    session = host_session(db, host_key.domains[0], host_key.sources[0], router) if host_key.sources else None
    return virtual_host_field(*build_gateway_host(host_key, routes, routing.attempt_count, session))


def build_gateway_host(
    host_key: GatewayHostKey, routes: Sequence[SourceRoutes], attempt_count: bool, session: StickySession | None = None
) -> tuple[bytes, ...]:
    """Return the pieces of the serialized virtual host. `routes` are those of each source.

    Routes that match every request come last, because they hide the routes after them.
    """
    host = route_components_pb2.VirtualHost(
        name=host_key.name,
        domains=host_key.domains,
        require_tls=route_components_pb2.VirtualHost.ALL
        if host_key.redirects
        else route_components_pb2.VirtualHost.NONE,
        include_request_attempt_count=attempt_count and bool(host_key.sources or host_key.redirects),
    )
    if session is not None:
        host.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(build_sticky_session(session))
    specific = chain.from_iterable([of_source.specific for of_source in routes])
    return (host.SerializeToString(deterministic=True), *specific, *(of_source.catch_all for of_source in routes))


@derived
def _blocks(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> tuple[int, ...]:
    return tuple(range(-(-len(gateway_host_keys(db, key, routing)) // BLOCK)))


@hub
def _block_keys(db: Mesh, number: int, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> tuple[GatewayHostKey, ...]:
    return gateway_host_keys(db, key, routing)[number * BLOCK : (number + 1) * BLOCK]


_virtual_hosts: Gather[GatewayHostKey, [int, GatewayRouteKey, GatewayRoutesFacet], bytes] = Gather(
    "gateway_virtual_hosts", _block_keys, _virtual_host, passed=lambda key, number, *args: args
)


def _join_block(db: Mesh, number: int, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> bytes:
    """Return a block of adjacent virtual hosts. Not memoised."""
    return b"".join(_virtual_hosts(db, number, key, routing).values())


@derived
def _block(db: Mesh, number: int, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> bytes | None:
    """Return one of many blocks, so that an edit reassembles only one of them."""
    return _join_block(db, number, key, routing)


_pieces: Gather[int, [GatewayRouteKey, GatewayRoutesFacet], bytes] = Gather(
    "gateway_virtual_hosts_in_blocks", _blocks, _block
)


@derived
def _route_configuration(db: Mesh, key: GatewayRouteKey, routing: GatewayRoutesFacet) -> Resource | None:
    if len(gateway_host_keys(db, key, routing)) <= BLOCK:
        return build_route_configuration(route_name(key), (_join_block(db, 0, key, routing),))
    return build_route_configuration(route_name(key), _pieces(db, key, routing).values())


gateway_route_configurations: Gather[GatewayRouteKey, [GatewayRoutesFacet], Resource] = Gather(
    "gateway_routes", _route_keys, _route_configuration
)
