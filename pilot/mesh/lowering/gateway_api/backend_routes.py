"""The Gateways that route to a backend. They are the ancestors of the policies that are attached to the backend."""

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
from pilot.mesh.gateway_api.gateways import gateway_class_of
from pilot.mesh.lowering.gateway_api.http_rules import http_targets
from pilot.mesh.lowering.gateway_api.layer4_rules import layer4_targets
from pilot.mesh.lowering.gateway_api.routes import RouteKey, all_routes, find_route
from pilot.mesh.tables.database import Mesh

Backends = frozenset[ObjectRef]


@derived
def _routes(db: Mesh) -> tuple[RouteKey, ...]:
    return all_routes(db)


@derived
def _ancestry(db: Mesh, route: RouteKey) -> tuple[tuple[ObjectKey, ...], Backends] | None:
    """Return the Gateways and backends of a route, or None if it has no Gateways or no backends."""
    row = find_route(db, route)
    if row is None:
        return None
    gateways = {
        ObjectKey(ref.namespace or route.namespace, ref.name)
        for ref in row.spec.parent_refs
        if (ref.group, ref.kind) == KUBERNETES_GATEWAY.id
    }
    if isinstance(row.spec, HTTPRoute | GRPCRoute):
        targets = http_targets(row.spec.rules)
    else:
        targets = layer4_targets(row.spec.rules)
    backends = frozenset(
        ObjectRef(GroupKind(target.group, target.kind), target.namespace or route.namespace, target.name)
        for target in targets
    )
    return (tuple(sorted(gateways)), backends) if gateways and backends else None


_by_route: Gather[RouteKey, [], tuple[tuple[ObjectKey, ...], Backends]] = Gather(
    "ancestry_of_routes", _routes, _ancestry
)


class BackendRoutes(NamedTuple):
    """The Gateways that have routes to a backend, and these routes."""

    gateways: frozenset[ObjectKey]
    routes: tuple[RouteKey, ...]


@hub
def _by_backend(db: Mesh) -> Mapping[ObjectRef, BackendRoutes]:
    by_backend: dict[ObjectRef, tuple[set[ObjectKey], list[RouteKey]]] = {}
    for route, (gateways, backends) in _by_route(db).items():
        for backend in backends:
            backend_gateways, routes = by_backend.setdefault(backend, (set(), []))
            backend_gateways.update(gateways)
            routes.append(route)
    return {
        backend: BackendRoutes(frozenset(gateways), tuple(routes)) for backend, (gateways, routes) in by_backend.items()
    }


_NOTHING = BackendRoutes(frozenset(), ())


@derived
def routes_to_backend(db: Mesh, backend: ObjectRef) -> tuple[RouteKey, ...]:
    """Return the routes that connect a Gateway to a backend."""
    return _by_backend(db).get(backend, _NOTHING).routes


@derived
def gateways_routing_to(db: Mesh, backend: ObjectRef) -> tuple[ObjectKey, ...]:
    """Return the Gateways of this control plane that have a route to a backend."""
    return tuple(
        sorted(key for key in _by_backend(db).get(backend, _NOTHING).gateways if gateway_class_of(db, key) is not None)
    )
