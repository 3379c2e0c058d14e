"""Checks that the Gateways of routes, the ports of their backends, and the classes of Gateways exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pilot.config.gateway_api.grpc_route import GRPCRouteRule
from pilot.config.gateway_api.http_route import HTTPRouteRule
from pilot.config.gateway_api.l4_route import L4RouteRule
from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import GATEWAY_CLASS, KUBERNETES_GATEWAY
from pilot.config.object import ObjectKey
from pilot.config.problem import Problem, Problems, below, each, info, warning
from pilot.derive import derived
from pilot.lib.suggestion import choices, did_you_mean
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.destination import check_destination
from pilot.mesh.gateway_api.gateway_classes import built_in_classes
from pilot.mesh.lowering.gateway_api.backends import BackendKey, backend
from pilot.mesh.lowering.gateway_api.http_rules import referenced_backend
from pilot.mesh.lowering.gateway_api.routes import RouteKey, RouteObject, all_routes, find_route
from pilot.mesh.tables.database import Mesh

_MAX_NAMESPACES = 3
"""Maximum number of namespaces with a Gateway that a problem lists."""


@derived
def _route_keys(db: Mesh) -> tuple[RouteKey, ...]:
    return all_routes(db) if db.settings.gateway_api.enabled else ()


@derived
def _route_problems(db: Mesh, key: RouteKey) -> tuple[Problem, ...]:
    route = find_route(db, key)
    if route is None:
        return ()
    parents = each("spec.parentRefs", route.spec.parent_refs, lambda ref: _check_parent(db, key, ref))
    return attribute(route, (*parents, *below("spec", _check_backends(db, key, route))))


def _check_parent(db: Mesh, route: RouteKey, ref: ParentReference) -> Problems:
    """Yield a problem if a parent is a Gateway that does not exist. The status of the route reports its listeners."""
    gateway = ObjectKey(ref.namespace or route.namespace, ref.name)
    if GroupKind(ref.group, ref.kind) == KUBERNETES_GATEWAY.id and KUBERNETES_GATEWAY.get(db, gateway) is None:
        names = [key.name for key in KUBERNETES_GATEWAY.keys(db, "namespace", gateway.namespace)]
        text = f"namespace {gateway.namespace} has no Gateway {gateway.name}"
        hint = _name_namespaces(db, gateway.name) or choices(gateway.name, names)
        yield warning("gateway-not-found", "name", text + hint)


def _name_namespaces(db: Mesh, name: str) -> str:
    """Return a hint on the namespaces that have a Gateway with a name, or "" if there is none."""
    namespaces = _gateway_namespaces(db).get(name, ())
    return f"; write namespace: {' or '.join(namespaces)}" if namespaces else ""


@derived
def _gateway_namespaces(db: Mesh) -> dict[str, tuple[str, ...]]:
    """Return the first namespaces of the Gateways with each name."""
    namespaces: dict[str, list[str]] = {}
    for key in KUBERNETES_GATEWAY.all_keys(db):
        namespaces.setdefault(key.name, []).append(key.namespace)
    return {name: tuple(sorted(own)[:_MAX_NAMESPACES]) for name, own in namespaces.items()}


def _check_backends(db: Mesh, key: RouteKey, route: RouteObject) -> Problems:
    rules: Iterable[HTTPRouteRule | GRPCRouteRule | L4RouteRule] = route.spec.rules
    for number, rule in enumerate(rules):
        for index, ref in enumerate(rule.backend_refs):
            resolved = backend(db, BackendKey(key.kind, key.namespace, True, referenced_backend(ref)))
            if resolved.fault is None and resolved.destination is not None:
                for problem in check_destination(db, resolved.destination, (key.namespace,), suggests=False):
                    yield from below(f"rules[{number}].backendRefs[{index}]", (_without_parts(problem),))


def _without_parts(problem: Problem) -> Problem:
    """Return a problem of a destination as one of a backendRef, whose port is a number."""
    field: Callable[[str, str, str], Problem] = warning if problem.code == "port-not-found" else info
    return field(problem.code, "port" if problem.path.startswith("port") else "name", problem.message)


ROUTE_REFERENCES = Check("route", _route_keys, _route_problems)


@derived
def _gateway_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return KUBERNETES_GATEWAY.all_keys(db) if db.settings.gateway_api.enabled else ()


@derived
def _class_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problem of a Gateway whose class does not exist. Files may lack the classes of other controllers."""
    gateway = KUBERNETES_GATEWAY.get(db, key)
    if gateway is None:
        return ()
    name, built_in = gateway.spec.gateway_class_name, built_in_classes(db)
    if name in built_in or GATEWAY_CLASS.get(db, ObjectKey("", name)) is not None:
        return ()
    names = [*built_in, *(class_key.name for class_key in GATEWAY_CLASS.all_keys(db))]
    suggestion = did_you_mean(name, names)
    text = f"there is no GatewayClass {name}, so the Gateway has no effect{suggestion}; there are {', '.join(names)}"
    build = warning if suggestion or name.startswith("istio") else info
    return attribute(gateway, (build("class-not-found", "spec.gatewayClassName", text),))


GATEWAY_CLASSES = Check("GatewayClass of Gateway", _gateway_keys, _class_problems)
