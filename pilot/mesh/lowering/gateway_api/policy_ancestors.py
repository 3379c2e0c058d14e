"""Gateways by which requests come to a backend: the ancestors of what is attached to it, beside the backend itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub
from pilot.mesh.gateway_api.gateways import class_of
from pilot.mesh.lowering.gateway_api.layer4_rules import layer4_targets
from pilot.mesh.lowering.gateway_api.route_objects import RouteKey, all_routes, find_route
from pilot.mesh.lowering.gateway_api.rules import http_targets
from pilot.mesh.tables.database import Mesh

Backends = frozenset[ObjectRef]


@derived
def _routes(db: Mesh) -> tuple[RouteKey, ...]:
    return all_routes(db)


@derived
def _ancestry(db: Mesh, route: RouteKey) -> tuple[tuple[ObjectKey, ...], Backends] | None:
    """Returns the Gateways that a route names, and its backends; None where it has none of either."""
    row = find_route(db, route)
    if row is None:
        return None
    named = {
        ObjectKey(ref.namespace or route.namespace, ref.name)
        for ref in row.spec.parent_refs
        if (ref.group, ref.kind) == KUBERNETES_GATEWAY.id
    }
    if isinstance(row.spec, HTTPRoute | GRPCRoute):
        targets = http_targets(row.spec.rules)
    else:
        targets = layer4_targets(row.spec.rules)
    backends = frozenset(
        ObjectRef(GroupKind(to.group, to.kind), to.namespace or route.namespace, to.name) for to in targets
    )
    return (tuple(sorted(named)), backends) if named and backends else None


_by_route: Gather[RouteKey, [], tuple[tuple[ObjectKey, ...], Backends]] = Gather(
    "ancestry_of_routes", _routes, _ancestry
)


class Before(NamedTuple):
    """The Gateways that routes to a backend name, and these routes."""

    gateways: frozenset[ObjectKey]
    routes: tuple[RouteKey, ...]


@hub
def _by_backend(db: Mesh) -> Mapping[ObjectRef, Before]:
    found: dict[ObjectRef, tuple[set[ObjectKey], list[RouteKey]]] = {}
    for route, (gateways, backends) in _by_route(db).items():
        for backend in backends:
            named, routes = found.setdefault(backend, (set(), []))
            named.update(gateways)
            routes.append(route)
    return {backend: Before(frozenset(gateways), tuple(routes)) for backend, (gateways, routes) in found.items()}


_NOTHING = Before(frozenset(), ())


@derived
def routes_before(db: Mesh, backend: ObjectRef) -> tuple[RouteKey, ...]:
    """Returns the routes that name a backend and some Gateway."""
    return _by_backend(db).get(backend, _NOTHING).routes


@derived
def gateways_before(db: Mesh, backend: ObjectRef) -> tuple[ObjectKey, ...]:
    """Returns the Gateways of this control plane that have a route to a backend."""
    return tuple(
        sorted(key for key in _by_backend(db).get(backend, _NOTHING).gateways if class_of(db, key) is not None)
    )
