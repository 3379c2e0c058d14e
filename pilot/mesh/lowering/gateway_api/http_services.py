"""VirtualServices that are converted from HTTPRoutes and GRPCRoutes.

At gateways, there is one for each listener and host. In the mesh, there is one for each namespace, port and host. The
rules of several routes are merged: the most specific match is first, and the oldest route is first among equals.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, VirtualService
from pilot.config.object import EndpointPicker, Object, ObjectKey, Origin
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub, updated
from pilot.lib.long_tuples import Mapped, map_items, replace_items
from pilot.mesh.gateway_api.generated_names import merged_service, part_name
from pilot.mesh.lowering.gateway_api.attachments import ListenerAttachment, attachments
from pilot.mesh.lowering.gateway_api.converted_routes import converted_rules
from pilot.mesh.lowering.gateway_api.http_rules import by_specificity
from pilot.mesh.lowering.gateway_api.parents import mesh_hosts
from pilot.mesh.lowering.gateway_api.routes import RouteKey, http_route_buckets, http_routes_in, route_binding
from pilot.mesh.tables.database import Mesh

MAX_PARTS = 8192
"""Maximum number of parts of the routes in a namespace. There is one for each route, listener and host.

1000 routes with 2 hosts each, for HTTP and HTTPS, have 4000 parts.
"""
MAX_RULES = 32_768
"""Maximum number of rules in all parts of the routes in a namespace. Each rule takes about 400 bytes."""
FEW_PARTS = 1000
"""Number of parts of a namespace up to which its rules are not limited."""

GROUPS = 128
"""Number of groups of VirtualServices."""


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


_parts: Gather[RouteKey, [int], tuple[RoutePart, ...]] = Gather(
    "parts_of_routes", http_routes_in, route_parts, passed=lambda key, bucket: ()
)

# -- limits ------------------------------------------------------------------------------------------------------------


class _Count(NamedTuple):
    """The number of parts of some routes, and of the rules in all of these parts."""

    parts: int = 0
    rules: int = 0

    def plus(self, other: _Count) -> _Count:
        return _Count(self.parts + other.parts, self.rules + other.rules)


@derived
def _counts_in(db: Mesh, bucket: int) -> Mapping[str, _Count] | None:
    """Return the counts for the routes in a bucket, by namespace."""
    counts: dict[str, _Count] = {}
    for route, parts in _parts(db, bucket).items():
        count = _Count(len(parts), len(parts) * _rule_count(db, route, parts[0].mesh))
        counts[route.namespace] = counts.get(route.namespace, _Count()).plus(count)
    return counts


_counts: Gather[int, [], Mapping[str, _Count]] = Gather("parts_by_namespace", http_route_buckets, _counts_in)


@hub
def excess_parts(db: Mesh) -> Mapping[RouteKey, int]:
    """Return the routes that are beyond the limits for their namespace, with the number of parts of each.

    Older routes take precedence.
    """
    totals: dict[str, _Count] = {}
    for counts in _counts(db).values():
        for namespace, count in counts.items():
            totals[namespace] = totals.get(namespace, _Count()).plus(count)
    excess: dict[RouteKey, int] = {}
    for namespace, count in totals.items():
        if count.parts > MAX_PARTS or (count.parts > FEW_PARTS and count.rules > MAX_RULES):
            excess |= _excess_in(db, namespace)
    return excess


def _excess_in(db: Mesh, namespace: str) -> dict[RouteKey, int]:
    """Return the routes of a namespace that are beyond its limits. Not memoised."""
    routes = [
        parts
        for bucket in http_route_buckets(db)
        for route, parts in _parts(db, bucket).items()
        if route.namespace == namespace
    ]
    excess, total = {}, _Count()
    for parts in sorted(routes):
        total = total.plus(_Count(len(parts), len(parts) * _rule_count(db, parts[0].route, parts[0].mesh)))
        if total.parts > MAX_PARTS or total.rules > MAX_RULES:
            excess[parts[0].route] = len(parts)
    return excess


@derived
def _rule_count(db: Mesh, route: RouteKey, mesh: bool) -> int:
    return len(converted_rules(db, route, mesh).rules)


# -- the parts of a VirtualService -------------------------------------------------------------------------------------


@hub
def _parts_in(db: Mesh, bucket: int) -> Mapping[str, tuple[RoutePart, ...]] | None:
    """Return the sorted parts of the routes in a bucket, keyed by `RoutePart.merge`, or None if there are none."""
    by_merge_key: dict[str, list[RoutePart]] = {}
    excess = excess_parts(db)
    for route, parts in _parts(db, bucket).items():
        for part in parts if route not in excess else ():
            by_merge_key.setdefault(part.merge, []).append(part)
    return {merge: tuple(sorted(parts)) for merge, parts in by_merge_key.items()} or None


_parts_by_bucket: Gather[int, [], Mapping[str, tuple[RoutePart, ...]]] = Gather(
    "parts_by_service", http_route_buckets, _parts_in
)


class _PartsOfService(NamedTuple):
    """The parts of a VirtualService: their merge key, and the buckets of their routes."""

    merge: str
    buckets: tuple[int, ...]


@hub
def _parts_by_service(db: Mesh) -> Mapping[ObjectKey, _PartsOfService]:
    """Return the parts of each VirtualService. It is in the namespace of the first of them."""
    buckets: dict[str, list[int]] = {}
    first: dict[str, RoutePart] = {}
    for bucket, parts in _parts_by_bucket(db).items():
        for merge, (one, *_) in parts.items():
            buckets.setdefault(merge, []).append(bucket)
            first[merge] = min(first.get(merge, one), one)
    return {
        ObjectKey(first[merge].route.namespace, merged_service(merge)): _PartsOfService(merge, tuple(numbers))
        for merge, numbers in buckets.items()
    }


@derived
def _merged_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return tuple(_parts_by_service(db))


@derived
def _groups(db: Mesh) -> tuple[Mapping[ObjectKey, _PartsOfService], ...]:
    """Return the parts of each VirtualService in groups, so that a new VirtualService affects one of them."""
    groups: tuple[dict[ObjectKey, _PartsOfService], ...] = tuple({} for _ in range(GROUPS))
    for key, parts in _parts_by_service(db).items():
        groups[hash(key) % GROUPS][key] = parts
    return groups


@hub
def _group(db: Mesh, number: int) -> Mapping[ObjectKey, _PartsOfService]:
    return _groups(db)[number]


@derived
def _parts_of(db: Mesh, key: ObjectKey) -> _PartsOfService:
    return _group(db, hash(key) % GROUPS).get(key, _PartsOfService("", ()))


# -- VirtualServices ---------------------------------------------------------------------------------------------------

_SortedRule = tuple[tuple[int, ...], RoutePart, int, HTTPRoute]
"""A rule, preceded by what it is sorted by: how specific it is, its part, and its position in the part."""
_Parent = tuple[RoutePart, ObjectRef]
"""A route, preceded by the first of its parts."""


class _Rules(NamedTuple):
    """The rules of parts, the routes to which the parts belong, and the pickers of the rules' destinations."""

    rules: tuple[_SortedRule, ...] = ()
    parents: tuple[_Parent, ...] = ()
    pickers: tuple[tuple[RoutePart, tuple[tuple[str, EndpointPicker], ...]], ...] = ()


@derived
def _part_rules(db: Mesh, part: RoutePart) -> _Rules:
    converted = converted_rules(db, part.route, part.mesh)
    rules = [_at_port(rule, part.port) for rule in converted.rules] if part.port else converted.rules
    return _Rules(
        tuple((by_specificity(rule), part, position, rule) for position, rule in enumerate(rules)),
        ((part, ObjectRef(*part.route)),),
        ((part, converted.pickers),) if converted.pickers else (),
    )


@derived
def _rules_in(db: Mesh, bucket: int, merge: str) -> _Rules:
    """Return the rules of the parts with a merge key that are from routes in a bucket."""
    by_part = [_part_rules(db, part) for part in (_parts_in(db, bucket) or {}).get(merge, ())]
    parents: dict[ObjectRef, _Parent] = {}
    for of_part in by_part:
        parents.setdefault(of_part.parents[0][1], of_part.parents[0])
    return _Rules(
        tuple(rule for of_part in by_part for rule in of_part.rules),
        tuple(parents.values()),
        tuple(pickers for of_part in by_part for pickers in of_part.pickers),
    )


class _MergedRules(NamedTuple):
    """The rules in each bucket, and all of them, sorted. `rules` and `parents` have them without their sort keys."""

    by_bucket: Mapping[int, _Rules]
    merged: _Rules
    rules: Mapped[_SortedRule, HTTPRoute]
    parents: Mapped[_Parent, ObjectRef]


@updated
def _merged_rules(db: Mesh, previous: _MergedRules | None, key: ObjectKey) -> _MergedRules:
    before = previous or _MergedRules({}, _Rules(), Mapped(), Mapped())
    merge, buckets = _parts_of(db, key)
    by_bucket = {bucket: _rules_in(db, bucket, merge) for bucket in buckets}
    gone = [rules for bucket, rules in before.by_bucket.items() if by_bucket.get(bucket) is not rules]
    new = [rules for bucket, rules in by_bucket.items() if before.by_bucket.get(bucket) is not rules]
    merged = _Rules(
        *(
            replace_items(items, [*chain(*(rules[n] for rules in gone))], [*chain(*(rules[n] for rules in new))])
            for n, items in enumerate(before.merged)
        )
    )
    return _MergedRules(
        by_bucket,
        merged,
        map_items(itemgetter(-1), merged.rules, before.rules),
        map_items(itemgetter(-1), merged.parents, before.parents),
    )


@derived
def _merged(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    merged = _merged_rules(db, key)
    if not merged.parents.items:
        return None
    first, _ = merged.parents.items[0]
    by_name: dict[str, EndpointPicker] = {}
    for _, of_part in merged.merged.pickers:
        by_name.update(of_part)
    return Object(
        VIRTUAL_SERVICE.id,
        key.namespace,
        key.name,
        VirtualService(hosts=(first.host,), gateways=(first.gateway,), http=merged.rules.results),
        created=first.age[0],
        origin=Origin(semantics="gateway", parents=merged.parents.results, pickers=tuple(by_name.items())),
    )


def _at_port(rule: HTTPRoute, port: int) -> HTTPRoute:
    return replace(
        rule, match=tuple(replace(match, port=port) for match in rule.match) or (HTTPMatchRequest(port=port),)
    )


virtual_services_of_http_routes: Gather[ObjectKey, [], Object[VirtualService]] = Gather(
    "virtual_services_of_http_routes", _merged_keys, _merged
)
"""The VirtualServices of all HTTPRoutes and GRPCRoutes. An edit to a route rebuilds only the VirtualServices for the
route's hosts."""
