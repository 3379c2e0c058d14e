"""Derives one virtual host of a sidecar, serialized: a value that every proxy shares for which it would be the same."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from envoy.config.route.v3 import route_components_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB
from pilot.config.networking.virtual_service import HTTPRetry, VirtualService
from pilot.config.object import Object
from pilot.derive import derived
from pilot.envoy.http_filter.prebuilt_http_filters import STATEFUL_SESSION_FILTER
from pilot.envoy.names import outbound_cluster
from pilot.envoy.route.action.retry_policy import build_retry
from pilot.envoy.route.action.route_action import build_hash_policy
from pilot.envoy.route.decorator import service_operation_name
from pilot.envoy.route.route_configuration import virtual_host_field
from pilot.envoy.route.route_context import RouteContext, default_retry_policy
from pilot.envoy.route.route_destination import DestinationKey, DestinationService
from pilot.envoy.route.route_match import MATCH_ALL
from pilot.envoy.route.sidecar.segment import HostKey, default_destination, host_domains
from pilot.envoy.route.sticky_session import StickySession, build_sticky_session, find_sticky_session
from pilot.envoy.route.virtual_service_routes import build_routes, has_routes
from pilot.envoy.well_known_types import ZERO_DURATION
from pilot.lib.hosts import with_port
from pilot.mesh.model.facets import Labels
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import virtual_service

MESH_GATEWAYS = frozenset(("mesh",))


class VirtualHostKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Holds all that a virtual host depends on, beside the objects that it is made from.

    `listener`: the port of the listener, 0 for one of all ports. `namespace`, `labels`: of the proxy, as far as the rules ask.
    `destinations`, `hashes`: what the rules lead to, as in `RouteContext`. `dns_domain`: as far as it matters to this host.
    `dropped`: domains that other hosts have. `sniffed`: the only host of its configuration, for any domain.
    """

    host: HostKey
    listener: int
    dns_domain: str
    families: AddressFamiliesFacet
    namespace: str = ""
    labels: Labels = frozenset()
    destinations: tuple[tuple[str, DestinationService], ...] = ()
    hashes: tuple[tuple[DestinationKey, ConsistentHashLB], ...] = ()
    dropped: tuple[str, ...] = ()
    attempt_count: bool = True
    forwarded_host: bool = False
    sniffed: bool = False


@derived
def virtual_host(db: Mesh, key: VirtualHostKey) -> bytes:
    """Returns the virtual host, as a field of its configuration; b"" where there is nothing to route or no domain left."""
    rule = _rule(db, key)
    if rule is None and key.host.ref is None:
        return b""
    domains = ["*"] if key.sniffed else _domains(db, key)
    if not domains:
        return b""
    routes = (
        build_routes(rule, _context(db, key))
        if rule is not None
        else [build_default_route(key, default_retry_policy(db))]
    )
    built = build_virtual_host(
        with_port(key.host.host, key.host.port), domains, routes, key.attempt_count, _session(db, key)
    )
    return virtual_host_field(built.SerializeToString(deterministic=True))


def _rule(db: Mesh, key: VirtualHostKey) -> Object[VirtualService] | None:
    """Returns the first VirtualService that has any route for the proxy."""
    for rule in key.host.rules:
        found = virtual_service(db, rule)
        if found is not None and has_routes(found.spec, key.listener, MESH_GATEWAYS, key.namespace, key.labels):
            return found
    return None


def _domains(db: Mesh, key: VirtualHostKey) -> list[str]:
    names = host_domains(db, key.host, key.dns_domain, key.families, key.listener).names
    return [n for n in names if n not in key.dropped] if key.dropped else list(names)


def _context(db: Mesh, key: VirtualHostKey) -> RouteContext:
    return RouteContext(
        port=key.listener,
        gateways=MESH_GATEWAYS,
        namespace=key.namespace,
        labels=key.labels,
        destinations=dict(key.destinations),
        hashes=dict(key.hashes),
        retries=default_retry_policy(db),
        forwarded_host=key.forwarded_host,
        shadow_suffix=not db.settings.routes.no_shadow_suffix,
    )


def _session(db: Mesh, key: VirtualHostKey) -> StickySession | None:
    found = (
        service(db, key.host.ref) if key.host.ref is not None and db.settings.listeners.persistent_sessions else None
    )
    return find_sticky_session(found) if found is not None else None


def build_default_route(key: VirtualHostKey, retries: HTTPRetry | None) -> route_components_pb2.Route:
    """Returns the route to all of a service that no VirtualService routes."""
    assert key.host.ref is not None
    hostname, port = key.host.ref.hostname, key.host.port
    own = default_destination(key.host.ref, port)
    hashed = [h for to, settings in key.hashes if to == own and (h := build_hash_policy(settings)) is not None]
    return route_components_pb2.Route(
        name="default",
        match=MATCH_ALL,
        route=route_components_pb2.RouteAction(
            cluster=outbound_cluster(port, "", hostname),
            timeout=ZERO_DURATION,
            max_grpc_timeout=ZERO_DURATION,
            retry_policy=build_retry(retries),
            hash_policy=hashed,
        ),
        decorator=route_components_pb2.Decorator(operation=service_operation_name(hostname, port)),
    )


def build_virtual_host(
    name: str,
    domains: Iterable[str],
    routes: Iterable[route_components_pb2.Route],
    attempt_count: bool,
    session: StickySession | None = None,
) -> route_components_pb2.VirtualHost:
    """Returns the virtual host. `attempt_count`: upstreams are told how often the request was tried."""
    out = route_components_pb2.VirtualHost(
        name=name, domains=domains, routes=routes, include_request_attempt_count=attempt_count
    )
    if session is not None:
        out.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(build_sticky_session(session))
    return out
