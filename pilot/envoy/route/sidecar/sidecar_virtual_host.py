"""Derives the serialized virtual hosts of sidecars. Proxies share equal virtual hosts."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import msgspec
from envoy.config.route.v3 import route_components_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB
from pilot.config.networking.virtual_service import HTTPRetry, VirtualService
from pilot.config.object import Object
from pilot.derive import derived_in_steps
from pilot.envoy.http_filter.prebuilt_http_filters import STATEFUL_SESSION_FILTER
from pilot.envoy.names import outbound_cluster
from pilot.envoy.resource import length_delimited
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
from pilot.mesh.traffic.route_limits import has_routes_at
from pilot.mesh.traffic.virtual_services import virtual_service

MESH_GATEWAYS = frozenset(("mesh",))
_ROUTES = route_components_pb2.VirtualHost.ROUTES_FIELD_NUMBER


class VirtualHostKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The key of a virtual host. It contains everything that affects the virtual host, except configuration objects.

    - `listener`: the port of the listener, or 0 for all ports.
    - `dns_domain`, `namespace`, `labels`: the parts of the proxy's properties that affect the virtual host.
    - `destinations`, `consistent_hashes`: as in `RouteContext`.
    - `dropped_domains`: domains that belong to other hosts.
    - `any_domain`: whether this is the only host of its configuration and matches any domain.
    """

    host: HostKey
    listener: int
    dns_domain: str
    families: AddressFamiliesFacet
    namespace: str = ""
    labels: Labels = frozenset()
    destinations: tuple[tuple[str, DestinationService], ...] = ()
    consistent_hashes: tuple[tuple[DestinationKey, ConsistentHashLB], ...] = ()
    dropped_domains: tuple[str, ...] = ()
    attempt_count: bool = True
    forwarded_host: bool = False
    any_domain: bool = False


@derived_in_steps
def virtual_host(db: Mesh, key: VirtualHostKey) -> Generator[None, None, bytes]:
    """Return the virtual host, encoded as a field of its configuration, or b"" if it has no routes or no domains."""
    rule = _rule(db, key)
    if rule is None and key.host.ref is None:
        return b""
    domains = ["*"] if key.any_domain else _domains(db, key)
    if not domains:
        return b""
    session = _session(db, key)
    routes: Iterable[route_components_pb2.Route] = (
        build_routes(rule, _context(db, key))
        if rule is not None
        else (build_default_route(key, default_retry_policy(db)),)
    )
    fields = []
    for route in routes:
        fields.append(length_delimited(_ROUTES, route.SerializeToString(deterministic=True)))
        yield
    name = with_port(key.host.host, key.host.port)
    return virtual_host_field(build_virtual_host(name, domains, fields, key.attempt_count, session))


def _rule(db: Mesh, key: VirtualHostKey) -> Object[VirtualService] | None:
    """Return the first VirtualService that has a route for the proxy, or None."""
    for rule in key.host.rules:
        row = virtual_service(db, rule)
        if (
            row is not None
            and has_routes(row.spec, key.listener, MESH_GATEWAYS, key.namespace, key.labels)
            and _has_routes_at_port(db, row.spec, key.host)
        ):
            return row
    return None


def _has_routes_at_port(db: Mesh, spec: VirtualService, host: HostKey) -> bool:
    """Return whether the routes of a VirtualService are used on the port of a host. There is a limit for all ports."""
    target = service(db, host.ref) if host.ref is not None else None
    return target is None or has_routes_at(spec, target.port_position(host.port))


def _domains(db: Mesh, key: VirtualHostKey) -> list[str]:
    names = host_domains(db, key.host, key.dns_domain, key.families, key.listener).names
    return [n for n in names if n not in key.dropped_domains] if key.dropped_domains else list(names)


def _context(db: Mesh, key: VirtualHostKey) -> RouteContext:
    return RouteContext(
        port=key.listener,
        gateways=MESH_GATEWAYS,
        namespace=key.namespace,
        labels=key.labels,
        destinations=dict(key.destinations),
        consistent_hashes=dict(key.consistent_hashes),
        retries=default_retry_policy(db),
        forwarded_host=key.forwarded_host,
        shadow_suffix=not db.settings.routes.no_shadow_suffix,
    )


def _session(db: Mesh, key: VirtualHostKey) -> StickySession | None:
    row = service(db, key.host.ref) if key.host.ref is not None and db.settings.listeners.persistent_sessions else None
    return find_sticky_session(row) if row is not None else None


def build_default_route(key: VirtualHostKey, retries: HTTPRetry | None) -> route_components_pb2.Route:
    """Return the route to a service that no VirtualService routes."""
    assert key.host.ref is not None
    hostname, port = key.host.ref.hostname, key.host.port
    destination = default_destination(key.host.ref, port)
    hash_policies = [
        hash_policy
        for candidate, settings in key.consistent_hashes
        if candidate == destination and (hash_policy := build_hash_policy(settings)) is not None
    ]
    return route_components_pb2.Route(
        name="default",
        match=MATCH_ALL,
        route=route_components_pb2.RouteAction(
            cluster=outbound_cluster(port, "", hostname),
            timeout=ZERO_DURATION,
            max_grpc_timeout=ZERO_DURATION,
            retry_policy=build_retry(retries),
            hash_policy=hash_policies,
        ),
        decorator=route_components_pb2.Decorator(operation=service_operation_name(hostname, port)),
    )


def build_virtual_host(
    name: str,
    domains: Iterable[str],
    routes: Iterable[bytes],
    attempt_count: bool,
    session: StickySession | None = None,
) -> bytes:
    """Return the serialized virtual host. `routes` are encoded as its fields.

    If `attempt_count` is set, upstreams receive the number of attempts in a request header.
    """
    head = route_components_pb2.VirtualHost(name=name, domains=domains)
    tail = route_components_pb2.VirtualHost(include_request_attempt_count=attempt_count)
    if session is not None:
        tail.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(build_sticky_session(session))
    return b"".join((head.SerializeToString(deterministic=True), *routes, tail.SerializeToString(deterministic=True)))
