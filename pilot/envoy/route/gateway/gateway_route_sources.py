"""Derives the routes of VirtualServices for Gateway servers. They are serialized once for all virtual hosts."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from msgspec.structs import replace

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.config.networking.virtual_service import HTTPRoute, VirtualService
from pilot.config.object import Object
from pilot.derive import derived, derived_in_steps
from pilot.envoy.resource import length_delimited
from pilot.envoy.route.gateway.gateway_host_plan import RouteSourceKey
from pilot.envoy.route.route_context import RouteContext, default_retry_policy
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationKey, DestinationService, find_destination_service
from pilot.envoy.route.route_match import is_catch_all
from pilot.envoy.route.sticky_session import StickySession
from pilot.envoy.route.virtual_service_routes import build_metadata, build_rule
from pilot.mesh.gateways.gateways import gateway_ports
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_lookup import destination_ref, visible_service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.route_limits import has_routes_at
from pilot.mesh.traffic.virtual_services import virtual_service

_ROUTES = route_components_pb2.VirtualHost.ROUTES_FIELD_NUMBER


class RouteBytes(NamedTuple):
    """A route, encoded as a field of its virtual host. `catch_all` is set if the route matches every request."""

    field: bytes
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


class RuleRoutes:
    """The routes of the rules of a VirtualService, as far as they have been built, by the identity of the rule.

    An edit of one of many HTTPRoutes with the same host changes one rule of their VirtualService, and the objects of
    the others stay. Besides the rule, routes depend only on the VirtualService without its rules (`header`) and on the
    context. As long as both are equal, they are not built again. Routes do not affect equality.
    """

    __slots__ = ("_by_rule", "_context", "_header")

    def __init__(self, header: Object[VirtualService], context: RouteContext) -> None:
        self._header, self._context = header, context
        self._by_rule: dict[int, tuple[HTTPRoute, tuple[RouteBytes, ...]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleRoutes) and (self._header, self._context) == (other._header, other._context)

    __hash__ = None  # type: ignore[assignment]

    def built(self, rule: HTTPRoute) -> tuple[RouteBytes, ...] | None:
        """Return the routes of a rule, or None if they have not been built."""
        entry = self._by_rule.get(id(rule))
        return entry[1] if entry is not None else None

    def build(self, rule: HTTPRoute, metadata: base_pb2.Metadata) -> Iterator[RouteBytes]:
        """Build the routes of a rule. The last one may be a catch-all."""
        routes = []
        for route in build_rule(self._header, rule, self._context, metadata):
            field = length_delimited(_ROUTES, route.SerializeToString(deterministic=True))
            routes.append(RouteBytes(field, is_catch_all(route.match)))
            yield routes[-1]
            if routes[-1].catch_all:
                break
        self._by_rule[id(rule)] = rule, tuple(routes)

    def forget_others(self, rules: tuple[HTTPRoute, ...]) -> None:
        """Forget the routes of rules that are no longer in the VirtualService."""
        if len(self._by_rule) > len(rules):
            ids = set(map(id, rules))
            self._by_rule = {key: entry for key, entry in self._by_rule.items() if key in ids}


def _rule_routes(db: Mesh, source: RouteSourceKey, router: RouterContextKey) -> RuleRoutes | None:
    """Return the routes of a source by rule. Not memoised."""
    row, dependencies = virtual_service(db, source.virtual_service), route_dependencies(db, source.virtual_service)
    if row is None or dependencies is None:
        return None
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
    origin = replace(row.origin, parents=()) if row.origin is not None else None
    return RuleRoutes(Object(row.kind, row.namespace, row.name, VirtualService(), origin=origin), context)


_MANY_RULES = 20
"""Number of rules from which it is worth the memory to keep the routes by rule."""


@derived
def _memoised_rule_routes(db: Mesh, source: RouteSourceKey, router: RouterContextKey) -> RuleRoutes | None:
    """Return the routes of a source by rule."""
    return _rule_routes(db, source, router)


@derived_in_steps
def source_routes(
    db: Mesh, source: RouteSourceKey, router: RouterContextKey
) -> Generator[None, None, tuple[RouteBytes, ...]]:
    """Return the routes of a source, in order. There are none on a port beyond the limit for the VirtualService."""
    row, ports = virtual_service(db, source.virtual_service), gateway_ports(db, source.gateway)
    if row is None:
        return ()
    by_rule = (_memoised_rule_routes if len(row.spec.http) > _MANY_RULES else _rule_routes)(db, source, router)
    if by_rule is None:
        return ()
    if source.port in ports and not has_routes_at(row.spec, ports.index(source.port)):
        return ()
    metadata, routes = build_metadata(row.key), list[RouteBytes]()
    for rule in row.spec.http:
        built = by_rule.built(rule)
        if built is not None:
            routes += built
        else:
            for route in by_rule.build(rule, metadata):
                routes.append(route)
                yield
        if not rule.match or (routes and routes[-1].catch_all):
            break
    by_rule.forget_others(row.spec.http)
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
