"""A common key for routes of all kinds, and the parents and hostnames of routes."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.config.gateway_api.l4_route import TCPRoute, TLSRoute
from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE, TLS_ROUTE
from pilot.config.object import Object, ObjectKey
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh

RouteObject = Object[HTTPRoute] | Object[GRPCRoute] | Object[TCPRoute] | Object[TLSRoute]


class RouteKey(NamedTuple):
    """Key of a route of the Gateway API."""

    kind: GroupKind
    namespace: str
    name: str

    @property
    def object(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class RouteBinding(NamedTuple):
    """The parents, hostnames and creation time of a route."""

    parent_refs: tuple[ParentReference, ...]
    hostnames: tuple[str, ...]
    created: str


def find_route(db: Mesh, key: RouteKey) -> RouteObject | None:
    """Return a route. Not memoised."""
    if key.kind == HTTP_ROUTE.id:
        return HTTP_ROUTE.get(db, key.object)
    if key.kind == GRPC_ROUTE.id:
        return GRPC_ROUTE.get(db, key.object)
    return TCP_ROUTE.get(db, key.object) if key.kind == TCP_ROUTE.id else TLS_ROUTE.get(db, key.object)


@derived
def route_binding(db: Mesh, key: RouteKey) -> RouteBinding | None:
    """Return the parents and hostnames of a route, or None if it does not exist. They do not depend on its rules."""
    row = find_route(db, key)
    if row is None:
        return None
    hostnames = () if isinstance(row.spec, TCPRoute) else row.spec.hostnames
    return RouteBinding(row.spec.parent_refs, hostnames, row.created)


@derived
def http_route_keys(db: Mesh) -> tuple[RouteKey, ...]:
    """Return the keys of all HTTPRoutes and GRPCRoutes."""
    by_kind = ((HTTP_ROUTE.id, HTTP_ROUTE.all_keys(db)), (GRPC_ROUTE.id, GRPC_ROUTE.all_keys(db)))
    return tuple(RouteKey(kind, *key) for kind, keys in by_kind for key in keys)


@derived
def layer4_route_keys(db: Mesh) -> tuple[RouteKey, ...]:
    """Return the keys of all TCPRoutes and TLSRoutes."""
    by_kind = ((TCP_ROUTE.id, TCP_ROUTE.all_keys(db)), (TLS_ROUTE.id, TLS_ROUTE.all_keys(db)))
    return tuple(RouteKey(kind, *key) for kind, keys in by_kind for key in keys)


def all_routes(db: Mesh) -> tuple[RouteKey, ...]:
    """Return the keys of all routes. Not memoised."""
    return (*http_route_keys(db), *layer4_route_keys(db))
