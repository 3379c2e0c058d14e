"""The converted rules of routes.

They are converted separately for gateways and for the mesh, because clients in the mesh need no ReferenceGrants.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.config.gateway_api.l4_route import TCPRoute, TLSRoute
from pilot.config.gateway_api.reference import BackendObjectReference
from pilot.derive import derived
from pilot.mesh.lowering.gateway_api.backends import BackendKey, Backends, backend
from pilot.mesh.lowering.gateway_api.http_rules import ConvertedRules, convert_grpc, convert_http, http_targets
from pilot.mesh.lowering.gateway_api.layer4_rules import Destinations, convert_layer4, layer4_targets
from pilot.mesh.lowering.gateway_api.routes import RouteKey, find_route
from pilot.mesh.tables.database import Mesh


@derived
def converted_rules(db: Mesh, key: RouteKey, mesh: bool) -> ConvertedRules:
    """Return the converted rules of an HTTPRoute or GRPCRoute, in the order of the route."""
    row = find_route(db, key)
    if row is None or not isinstance(row.spec, HTTPRoute | GRPCRoute):
        return ConvertedRules()
    backends, name = _resolve(db, key, mesh, http_targets(row.spec.rules)), f"{key.namespace}.{key.name}"
    if isinstance(row.spec, HTTPRoute):
        return convert_http(name, row.spec.rules, backends)
    return convert_grpc(name, row.spec.rules, backends)


@derived
def converted_destinations(db: Mesh, key: RouteKey, mesh: bool) -> Destinations:
    """Return the converted destinations of a TCPRoute or TLSRoute."""
    row = find_route(db, key)
    if row is None or not isinstance(row.spec, TCPRoute | TLSRoute):
        return Destinations()
    return convert_layer4(row.spec.rules, _resolve(db, key, mesh, layer4_targets(row.spec.rules)))


def _resolve(db: Mesh, key: RouteKey, mesh: bool, targets: Iterable[BackendObjectReference]) -> Backends:
    return {to: backend(db, BackendKey(key.kind, key.namespace, mesh, to)) for to in targets}
