"""Derives the routes of VirtualServices for Gateway servers. They are serialized once for all virtual hosts."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import msgspec

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.derive import derived, derived_in_steps
from pilot.envoy.route.gateway.gateway_host_plan import RouteSourceKey
from pilot.envoy.route.route_context import RouteContext, default_retry_policy
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationKey, DestinationService, find_destination_service
from pilot.envoy.route.route_match import is_catch_all
from pilot.envoy.route.sticky_session import StickySession
from pilot.envoy.route.virtual_service_routes import build_routes
from pilot.mesh.gateways.gateways import gateway_ports
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_lookup import destination_ref, visible_service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.route_limits import has_routes_at
from pilot.mesh.traffic.virtual_services import virtual_service


class RouteBytes(NamedTuple):
    """A serialized route. `catch_all` is set if the route matches every request."""

    route: bytes
    catch_all: bool


class RouterContextKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a router that affect its routes.

    If `alt_svc` is set, responses advertise HTTP/3. For the other fields, see `GatewayRoutesFacet`.
    """

    scope: ScopeFacet
    labels: Labels
    sources: Labels
    forwarded_host: bool
    alt_svc: bool


@derived_in_steps
def source_routes(
    db: Mesh, source: RouteSourceKey, router: RouterContextKey
) -> Generator[None, None, tuple[RouteBytes, ...]]:
    """Return the routes of a source, in order. There are none on a port beyond the limit for the VirtualService."""
    row, dependencies = virtual_service(db, source.virtual_service), route_dependencies(db, source.virtual_service)
    ports = gateway_ports(db, source.gateway)
    if row is None or dependencies is None:
        return ()
    if source.port in ports and not has_routes_at(row.spec, ports.index(source.port)):
        return ()
    owner, viewer = source.virtual_service.namespace, router.scope.namespace
    context = RouteContext(
        port=source.port,
        gateways=frozenset((f"{source.gateway.namespace}/{source.gateway.name}",)),
        namespace=viewer,
        labels=router.sources,
        destinations={
            host: destination_service(db, ref)
            for host in dependencies.hosts
            if (ref := destination_ref(db, host, owner, viewer)) is not None
        },
        consistent_hashes={
            key: settings
            for key in dependencies.hash_candidates
            if (settings := _consistent_hash(db, key, router)) is not None
        },
        retries=default_retry_policy(db),
        forwarded_host=router.forwarded_host,
        tls=source.tls,
        alt_svc=router.alt_svc,
        shadow_suffix=not db.settings.routes.no_shadow_suffix,
    )
    routes = []
    for route in build_routes(row, context):
        routes.append(RouteBytes(route.SerializeToString(deterministic=True), is_catch_all(route.match)))
        yield
    return tuple(routes)


def _consistent_hash(db: Mesh, key: DestinationKey, router: RouterContextKey) -> ConsistentHashLB | None:
    """Return the hash settings of the DestinationRule that a router applies to a destination."""
    ref = visible_service(db, key.host, router.scope.namespace)
    rule = destination_rule(db, router.scope, ref, router.labels) if ref is not None else None
    return destination_hash(rule.spec, key.subset, key.port) if rule is not None else None


@derived
def destination_service(db: Mesh, ref: ServiceRef) -> DestinationService:
    """Return the properties of a service that affect the routes to it."""
    return find_destination_service(db, ref)


@derived
def host_session(db: Mesh, host: str, source: RouteSourceKey, router: RouterContextKey) -> StickySession | None:
    """Return the sticky session of a virtual host.

    Return None if there is none, or if its VirtualService does not route to the service `host`.
    """
    dependencies = route_dependencies(db, source.virtual_service) if db.settings.listeners.persistent_sessions else None
    if dependencies is None or host not in dependencies.hosts:
        return None
    ref = destination_ref(db, host, source.virtual_service.namespace, router.scope.namespace)
    return destination_service(db, ref).session if ref is not None else None
