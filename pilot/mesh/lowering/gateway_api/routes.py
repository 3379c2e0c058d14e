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
from pilot.derive import derived, updated
from pilot.lib.long_tuples import Mapped, map_items
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


# -- lists of routes. A new route changes the list of one bucket (see `route_bucket`) ----------------------------------


@derived
def http_route_buckets(db: Mesh) -> tuple[int, ...]:
    """Return the buckets with HTTPRoutes or GRPCRoutes."""
    return tuple(sorted({*HTTP_ROUTE.buckets(db, "bucket"), *GRPC_ROUTE.buckets(db, "bucket")}))


@derived
def http_routes_in(db: Mesh, bucket: int) -> tuple[RouteKey, ...]:
    """Return the keys of the HTTPRoutes and GRPCRoutes in a bucket."""
    kinds = (HTTP_ROUTE, GRPC_ROUTE)
    return tuple(RouteKey(kind.id, *key) for kind in kinds for key in kind.keys(db, "bucket", bucket))


@derived
def route_buckets(db: Mesh) -> tuple[int, ...]:
    """Return the buckets with routes of any kind."""
    layer4 = (*TCP_ROUTE.buckets(db, "bucket"), *TLS_ROUTE.buckets(db, "bucket"))
    return tuple(sorted({*http_route_buckets(db), *layer4}))


@derived
def routes_in(db: Mesh, bucket: int) -> tuple[RouteKey, ...]:
    """Return the keys of the routes of all kinds in a bucket."""
    kinds = (TCP_ROUTE, TLS_ROUTE)
    layer4 = (RouteKey(kind.id, *key) for kind in kinds for key in kind.keys(db, "bucket", bucket))
    return (*http_routes_in(db, bucket), *layer4)


@derived
def layer4_route_keys(db: Mesh) -> tuple[RouteKey, ...]:
    """Return the keys of all TCPRoutes and TLSRoutes."""
    return _keys_of(db, TCP_ROUTE.id).results + _keys_of(db, TLS_ROUTE.id).results


def all_routes(db: Mesh) -> tuple[RouteKey, ...]:
    """Return the keys of all routes. Not memoised."""
    return _keys_of(db, HTTP_ROUTE.id).results + _keys_of(db, GRPC_ROUTE.id).results + layer4_route_keys(db)


_KINDS = {kind.id: kind for kind in (HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE, TLS_ROUTE)}
_Keys = Mapped[ObjectKey, RouteKey]


@updated
def _keys_of(db: Mesh, previous: _Keys | None, kind: GroupKind) -> _Keys:
    return map_items(lambda key: RouteKey(kind, *key), _KINDS[kind].all_keys(db), previous or Mapped())
