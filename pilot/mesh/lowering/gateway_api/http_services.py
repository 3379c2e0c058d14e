"""VirtualServices that are converted from HTTPRoutes and GRPCRoutes.

At gateways, there is one for each listener and host. In the mesh, there is one for each namespace, port and host. The
rules of several routes are merged: the most specific match is first, and the oldest route is first among equals.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, VirtualService
from pilot.config.object import EndpointPicker, Object, ObjectKey, Origin
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub
from pilot.mesh.gateway_api.generated_names import merged_service, part_name
from pilot.mesh.lowering.gateway_api.attachments import ListenerAttachment, attachments
from pilot.mesh.lowering.gateway_api.converted_routes import converted_rules
from pilot.mesh.lowering.gateway_api.http_rules import by_specificity
from pilot.mesh.lowering.gateway_api.parents import mesh_hosts
from pilot.mesh.lowering.gateway_api.routes import RouteKey, http_route_keys, route_binding
from pilot.mesh.tables.database import Mesh

MAX_PARTS = 8192
"""Maximum number of parts of the routes in a namespace. There is one for each route, listener and host.

1000 routes with 2 hosts each, for HTTP and HTTPS, have 4000 parts.
"""
MAX_RULES = 32_768
"""Maximum number of rules in all parts of the routes in a namespace. Each rule takes about 400 bytes."""
FEW_PARTS = 1000
"""Number of parts of a namespace up to which its rules are not counted, so that an edit of them affects its own route
only."""

BUCKETS = 128
"""Number of buckets of the VirtualServices."""


class RoutePart(NamedTuple):
    """The contribution of a route to one VirtualService.

    Parts with the same `merge` key are merged in the order of `age`. `port` limits the rules to one port of a service.
    It is 0 for all ports.
    """

    age: tuple[str, str, str]
    merge: str
    route: RouteKey
    host: str
    gateway: str
    mesh: bool
    port: int


@derived
def route_parts(db: Mesh, route: RouteKey) -> tuple[RoutePart, ...] | None:
    """Return the parts of a route, or None if it has none.

    They do not depend on the contents of the route's rules, but only on whether there are any rules.
    """
    binding = route_binding(db, route)
    if binding is None:
        return None
    parts: list[RoutePart] = []
    for attachment in sorted(
        (attachment for attachment in attachments(db, route) if attachment.rejection is None),
        key=lambda attachment: attachment.parent.gateway,
    ):
        if not _has_rules(db, route, attachment.is_mesh):
            continue
        port = attachment.ref.port or 0 if attachment.is_mesh else 0
        merge = _merge_key(attachment, route, port)
        for host in _hosts(db, attachment, binding.hostnames):
            age = binding.created, route.namespace, part_name(route.object, len(parts))
            parts.append(
                RoutePart(age, f"{merge}/{host}", route, host, attachment.parent.gateway, attachment.is_mesh, port)
            )
    return tuple(parts) or None


@derived
def _has_rules(db: Mesh, route: RouteKey, mesh: bool) -> bool:
    return bool(converted_rules(db, route, mesh).rules)


def _merge_key(attachment: ListenerAttachment, route: RouteKey, port: int) -> str:
    if not attachment.is_mesh:
        return attachment.parent.gateway
    return f"{route.namespace}/{port}" if port else route.namespace


def _hosts(db: Mesh, attachment: ListenerAttachment, hostnames: tuple[str, ...]) -> tuple[str, ...]:
    return (
        mesh_hosts(db, attachment.kind, attachment.target)
        if attachment.is_mesh
        else tuple(hostname for hostname in hostnames or ("*",) if attachment.accepts_host(hostname))
    )


_all_parts: Gather[RouteKey, [], tuple[RoutePart, ...]] = Gather("parts_of_routes", http_route_keys, route_parts)


@hub
def excess_parts(db: Mesh) -> Mapping[RouteKey, int]:
    """Return the routes that are beyond the limits for their namespace, with the number of parts of each.

    Older routes take precedence.
    """
    by_namespace: dict[str, list[tuple[RoutePart, ...]]] = {}
    for parts in _all_parts(db).values():
        by_namespace.setdefault(parts[0].route.namespace, []).append(parts)
    excess: dict[RouteKey, int] = {}
    for routes in by_namespace.values():
        if sum(map(len, routes)) > FEW_PARTS:
            total = rules = 0
            for parts in sorted(routes):
                total += len(parts)
                rules += len(parts) * _rule_count(db, parts[0].route, parts[0].mesh)
                if total > MAX_PARTS or rules > MAX_RULES:
                    excess[parts[0].route] = len(parts)
    return excess


@derived
def _rule_count(db: Mesh, route: RouteKey, mesh: bool) -> int:
    return len(converted_rules(db, route, mesh).rules)


@hub
def _parts_by_service(db: Mesh) -> Mapping[ObjectKey, tuple[RoutePart, ...]]:
    """Return the parts of each VirtualService, keyed by VirtualService."""
    by_merge_key: dict[str, list[RoutePart]] = {}
    excess = excess_parts(db)
    for parts in _all_parts(db).values():
        for part in parts if parts[0].route not in excess else ():
            by_merge_key.setdefault(part.merge, []).append(part)
    ordered = ((merge, tuple(sorted(parts))) for merge, parts in by_merge_key.items())
    return {ObjectKey(parts[0].route.namespace, merged_service(merge)): parts for merge, parts in ordered}


@derived
def _merged_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return tuple(_parts_by_service(db))


@derived
def _buckets(db: Mesh) -> tuple[Mapping[ObjectKey, tuple[RoutePart, ...]], ...]:
    """Return the parts in buckets, so that a new route affects one of them."""
    buckets: tuple[dict[ObjectKey, tuple[RoutePart, ...]], ...] = tuple({} for _ in range(BUCKETS))
    for key, parts in _parts_by_service(db).items():
        buckets[hash(key) % BUCKETS][key] = parts
    return buckets


@hub
def _bucket(db: Mesh, number: int) -> Mapping[ObjectKey, tuple[RoutePart, ...]]:
    return _buckets(db)[number]


@derived
def _parts_of(db: Mesh, key: ObjectKey) -> tuple[RoutePart, ...]:
    return _bucket(db, hash(key) % BUCKETS).get(key, ())


@derived
def _merged(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    parts = _parts_of(db, key)
    if not parts:
        return None
    rules: list[tuple[tuple[int, ...], HTTPRoute]] = []
    pickers: dict[str, EndpointPicker] = {}
    for part in parts:
        rules_of_part = _part_rules(db, part.route, part.mesh, part.port)
        rules += rules_of_part.rules
        pickers.update(rules_of_part.pickers)
    rules.sort(key=itemgetter(0))
    first, routes = parts[0], dict.fromkeys([part.route for part in parts])
    return Object(
        VIRTUAL_SERVICE.id,
        key.namespace,
        key.name,
        VirtualService(hosts=(first.host,), gateways=(first.gateway,), http=tuple([rule for _, rule in rules])),
        created=first.age[0],
        origin=Origin(
            semantics="gateway",
            parents=tuple(ObjectRef(*route) for route in routes),
            pickers=tuple(pickers.items()),
        ),
    )


class _PartRules(NamedTuple):
    """The rules of a part with the keys by which they are sorted, and the pickers of their destinations."""

    rules: tuple[tuple[tuple[int, ...], HTTPRoute], ...]
    pickers: tuple[tuple[str, EndpointPicker], ...]


@derived
def _part_rules(db: Mesh, route: RouteKey, mesh: bool, port: int) -> _PartRules:
    converted = converted_rules(db, route, mesh)
    rules = [_at_port(rule, port) for rule in converted.rules] if port else converted.rules
    return _PartRules(tuple((by_specificity(rule), rule) for rule in rules), converted.pickers)


def _at_port(rule: HTTPRoute, port: int) -> HTTPRoute:
    return replace(
        rule, match=tuple(replace(match, port=port) for match in rule.match) or (HTTPMatchRequest(port=port),)
    )


virtual_services_of_http_routes: Gather[ObjectKey, [], Object[VirtualService]] = Gather(
    "virtual_services_of_http_routes", _merged_keys, _merged
)
"""The VirtualServices of all HTTPRoutes and GRPCRoutes. An edit to a route rebuilds only the VirtualServices for the
route's hosts."""
