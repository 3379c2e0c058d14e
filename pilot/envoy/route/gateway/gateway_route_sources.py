"""Derives the routes of VirtualServices for Gateway servers. They are serialized once for all virtual hosts."""

from __future__ import annotations

from collections.abc import Generator
from operator import itemgetter
from typing import NamedTuple

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from msgspec.structs import replace

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.config.networking.virtual_service import HTTPRoute, VirtualService
from pilot.config.object import Object, ObjectKey
from pilot.derive import derived, derived_in_steps, updated
from pilot.envoy.resource import length_delimited
from pilot.envoy.route.gateway.gateway_host_plan import RouteSourceKey
from pilot.envoy.route.route_context import RouteContext, default_retry_policy
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationKey, DestinationService, find_destination_service
from pilot.envoy.route.route_match import is_catch_all
from pilot.envoy.route.sticky_session import StickySession
from pilot.envoy.route.virtual_service_routes import build_metadata, build_rule
from pilot.lib.long_tuples import missing
from pilot.mesh.gateways.gateways import gateway_ports
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_lookup import destination_ref, visible_service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule
from pilot.mesh.traffic.route_limits import has_routes_at
from pilot.mesh.traffic.rule_traits import MANY_RULES, ByRule, hosts_of
from pilot.mesh.traffic.virtual_services import virtual_service

_ROUTES = route_components_pb2.VirtualHost.ROUTES_FIELD_NUMBER


class SourceRoutes(NamedTuple):
    """The routes of a source, encoded as fields of its virtual host. `specific` has one item for each rule.

    `catch_all` is the route that matches every request, which is the last one, or b"" if there is none.
    """

    specific: tuple[bytes, ...] = ()
    catch_all: bytes = b""


class RouterContextKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a router that affect its routes.

    If `alt_svc` is set, responses advertise HTTP/3. For the other fields, see `GatewayRoutesFacet`.
    """

    scope: ScopeFacet
    labels: Labels
    sources: Labels
    forwarded_host: bool
    alt_svc: bool


class _BuiltRule(NamedTuple):
    """The routes of a rule, encoded as in `SourceRoutes`.

    `is_last` is set if the rules after it have no routes, because it matches every request.
    """

    specific: bytes
    catch_all: bytes
    is_last: bool


class RuleRoutes:
    """The routes of the rules of a VirtualService, as far as they have been built.

    Besides the rule, routes depend only on the VirtualService without its rules (`header`) and on the context, of which
    only the properties of the rule's own destinations affect them. As long as these are equal, they are not built
    again. Routes do not affect equality.
    """

    __slots__ = ("_by_rule", "_context", "_header")

    def __init__(self, header: Object[VirtualService], context: RouteContext) -> None:
        self._header, self._context = header, context
        self._by_rule: ByRule[_BuiltRule] = ByRule()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleRoutes) and (self._header, self._context) == (other._header, other._context)

    __hash__ = None  # type: ignore[assignment]

    def take_over(self, previous: RuleRoutes) -> None:
        """Keep the routes of the previous value that are not affected by what has changed since."""
        if (self._header, _without_hosts(self._context)) == (previous._header, _without_hosts(previous._context)):
            changed = _changed_hosts(previous._context, self._context)
            self._by_rule = previous._by_rule
            if changed:
                self._by_rule.forget(lambda rule: not changed.isdisjoint(hosts_of(rule)))

    def routes(self, rules: tuple[HTTPRoute, ...]) -> Generator[None, None, SourceRoutes]:
        """Return the routes of rules, up to the first rule that matches every request. They are built in steps."""
        built, start = self._by_rule.align(rules), 0
        metadata = build_metadata(self._header.key)
        for position in missing(built):
            if any(of_rule is not None and of_rule.is_last for of_rule in built[start:position]):
                break
            built[position] = yield from self._build(rules[position], metadata)
            start = position
        used = [*filter(None, built)]
        is_last = [*map(_IS_LAST, used)]
        if True in is_last:
            used = used[: is_last.index(True) + 1]
        return SourceRoutes(tuple(map(_SPECIFIC, used)), used[-1].catch_all if used else b"")

    def _build(self, rule: HTTPRoute, metadata: base_pb2.Metadata) -> Generator[None, None, _BuiltRule]:
        specific = bytearray()
        for route in build_rule(self._header, rule, self._context, metadata):
            field = length_delimited(_ROUTES, route.SerializeToString(deterministic=True))
            yield
            if is_catch_all(route.match):
                return _BuiltRule(bytes(specific), field, is_last=True)
            specific += field
        return _BuiltRule(bytes(specific), b"", is_last=not rule.match)


_SPECIFIC, _IS_LAST = itemgetter(0), itemgetter(2)


def _without_hosts(context: RouteContext) -> RouteContext:
    return replace(context, destinations={}, consistent_hashes={})


def _changed_hosts(before: RouteContext, after: RouteContext) -> set[str]:
    """Return the hosts of destinations whose properties differ in two contexts."""
    pairs = (before, after), (after, before)
    hosts = {host for a, b in pairs for host, to in a.destinations.items() if b.destinations.get(host) != to}
    hashes = {key for a, b in pairs for key, to in a.consistent_hashes.items() if b.consistent_hashes.get(key) != to}
    return hosts.union(key.host for key in hashes)


def _without_rules(row: Object[VirtualService]) -> Object[VirtualService]:
    """Return what all rules of a VirtualService have in common."""
    origin = replace(row.origin, parents=()) if row.origin is not None else None
    return Object(row.kind, row.namespace, row.name, VirtualService(), origin=origin)


@derived
def _header(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    row = virtual_service(db, key)
    return _without_rules(row) if row is not None else None


def _rule_routes(
    db: Mesh, header: Object[VirtualService] | None, source: RouteSourceKey, router: RouterContextKey
) -> RuleRoutes | None:
    """Return the routes of a source by rule. Not memoised."""
    dependencies = route_dependencies(db, source.virtual_service)
    if header is None or dependencies is None:
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
    return RuleRoutes(header, context)


@updated
def _memoised_rule_routes(
    db: Mesh, previous: RuleRoutes | None, source: RouteSourceKey, router: RouterContextKey
) -> RuleRoutes | None:
    """Return the routes of a source by rule."""
    by_rule = _rule_routes(db, _header(db, source.virtual_service), source, router)
    if by_rule is not None and previous is not None:
        by_rule.take_over(previous)
    return by_rule


@derived_in_steps
def source_routes(db: Mesh, source: RouteSourceKey, router: RouterContextKey) -> Generator[None, None, SourceRoutes]:
    """Return the routes of a source, in order. There are none on a port beyond the limit for the VirtualService."""
    row, ports = virtual_service(db, source.virtual_service), gateway_ports(db, source.gateway)
    if row is None:
        return SourceRoutes()
    by_rule = (
        _memoised_rule_routes(db, source, router)
        if len(row.spec.http) > MANY_RULES
        else _rule_routes(db, _without_rules(row), source, router)
    )
    if by_rule is None:
        return SourceRoutes()
    if source.port in ports and not has_routes_at(row.spec, ports.index(source.port)):
        return SourceRoutes()
    return (yield from by_rule.routes(row.spec.http))


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
