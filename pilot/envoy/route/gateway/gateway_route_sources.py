"""Derives the routes that a VirtualService gives to the servers of a Gateway, serialized once for all virtual hosts that have them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.derive import derived
from pilot.envoy.route.gateway.gateway_host_plan import RouteSourceKey
from pilot.envoy.route.route_context import RouteContext, default_retry_policy
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationKey, DestinationService, find_destination_service
from pilot.envoy.route.route_match import is_catch_all
from pilot.envoy.route.sticky_session import StickySession
from pilot.envoy.route.virtual_service_routes import build_routes
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_lookup import destination_ref, visible_service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.virtual_services import virtual_service


class RouteBytes(NamedTuple):
    """Holds a serialized route; `catch_all`: no request gets past it."""

    route: bytes
    catch_all: bool


class RouterContextKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what the routes of a source depend on beside it. `alt_svc`: answers tell of HTTP/3; the others are as in `GatewayRoutesFacet`."""

    scope: ScopeFacet
    labels: Labels
    sources: Labels
    forwarded_host: bool
    alt_svc: bool


@derived
def source_routes(db: Mesh, source: RouteSourceKey, offer: RouterContextKey) -> tuple[RouteBytes, ...]:
    """Returns the routes of a source, in order."""
    found, asks = virtual_service(db, source.virtual_service), route_dependencies(db, source.virtual_service)
    if found is None or asks is None:
        return ()
    owner, viewer = source.virtual_service.namespace, offer.scope.namespace
    context = RouteContext(
        port=source.port,
        gateways=frozenset((f"{source.gateway.namespace}/{source.gateway.name}",)),
        namespace=viewer,
        labels=offer.sources,
        destinations={
            host: destination_service(db, ref)
            for host in asks.hosts
            if (ref := destination_ref(db, host, owner, viewer)) is not None
        },
        hashes={key: settings for key in asks.hashed if (settings := _hashing(db, key, offer)) is not None},
        retries=default_retry_policy(db),
        forwarded_host=offer.forwarded_host,
        tls=source.tls,
        alt_svc=offer.alt_svc,
        shadow_suffix=not db.settings.routes.no_shadow_suffix,
    )
    return tuple(
        RouteBytes(r.SerializeToString(deterministic=True), is_catch_all(r.match)) for r in build_routes(found, context)
    )


def _hashing(db: Mesh, key: DestinationKey, offer: RouterContextKey) -> ConsistentHashLB | None:
    """Returns what the DestinationRule that a router follows for a destination says of hashing."""
    ref = visible_service(db, key.host, offer.scope.namespace)
    rule = destination_rule(db, offer.scope, ref, offer.labels) if ref is not None else None
    return destination_hash(rule.spec, key.subset, key.port) if rule is not None else None


@derived
def destination_service(db: Mesh, ref: ServiceRef) -> DestinationService:
    """Returns a service, as far as routes to it depend on it."""
    return find_destination_service(db, ref)


@derived
def host_session(db: Mesh, host: str, source: RouteSourceKey, offer: RouterContextKey) -> StickySession | None:
    """Returns the sticky session of the host of a virtual host, where its VirtualService leads to the service of that very name."""
    asks = route_dependencies(db, source.virtual_service) if db.settings.listeners.persistent_sessions else None
    if asks is None or host not in asks.hosts:
        return None
    ref = destination_ref(db, host, source.virtual_service.namespace, offer.scope.namespace)
    return destination_service(db, ref).session if ref is not None else None
