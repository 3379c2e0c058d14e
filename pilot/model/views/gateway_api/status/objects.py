"""Every object that is told in its status what becomes of it: those of the Gateway API, and Ingresses."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pilot.derive import derived
from pilot.model.condition import Condition
from pilot.model.config.object import Object, ObjectKey
from pilot.model.inputs import Mesh
from pilot.model.kind import EXPERIMENTAL_GATEWAY_API, GATEWAY_API, GroupKind
from pilot.model.problem import ObjectRef
from pilot.model.views.gateway_api.gateways import GATEWAY, LISTENER_SET
from pilot.model.views.gateway_api.listeners import GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE, TLS_ROUTE
from pilot.model.views.gateway_api.route_objects import RouteKey
from pilot.model.views.gateway_api.status.gateways import GatewayStatus, class_status, gateway_status, listener_set_status
from pilot.model.views.gateway_api.status.policies import AncestorStatus, backend_tls_status, traffic_policy_status
from pilot.model.views.gateway_api.status.routes import ParentStatus, route_status
from pilot.model.views.ingress.status import ingress_status
from pilot.model.views.kinds.backend_tls_policies import backend_tls_policies
from pilot.model.views.kinds.backend_traffic_policies import backend_traffic_policies
from pilot.model.views.kinds.gateway_classes import gateway_classes
from pilot.model.views.kinds.grpc_routes import grpc_routes
from pilot.model.views.kinds.http_routes import http_routes
from pilot.model.views.kinds.ingresses import ingresses
from pilot.model.views.kinds.kubernetes_gateways import kubernetes_gateways
from pilot.model.views.kinds.listener_sets import listener_sets
from pilot.model.views.kinds.tcp_routes import tcp_routes
from pilot.model.views.kinds.tls_routes import tls_routes
from pilot.model.views.kinds.view import KindView

INGRESS = GroupKind("networking.k8s.io", "Ingress")
GATEWAY_CLASS = GroupKind(GATEWAY_API, "GatewayClass")
TLS_POLICY, TRAFFIC_POLICY = GroupKind(GATEWAY_API, "BackendTLSPolicy"), GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackendTrafficPolicy")


class ClassStatus(NamedTuple):
    """The status of a GatewayClass."""

    conditions: tuple[Condition, ...]


class RouteStatus(NamedTuple):
    """The status of a route, for those of its parents that are this control plane's."""

    parents: tuple[ParentStatus, ...] = ()


class PolicyStatus(NamedTuple):
    """The status of a policy."""

    ancestors: tuple[AncestorStatus, ...] = ()


class IngressStatus(NamedTuple):
    """The status of an Ingress: IP addresses and host names."""

    addresses: tuple[str, ...] = ()


Status = ClassStatus | GatewayStatus | RouteStatus | PolicyStatus | IngressStatus


def _class(db: Mesh, key: ObjectKey) -> Status | None:
    found = class_status(db, key.name)
    return ClassStatus(found) if found is not None else None


def _ingress(db: Mesh, key: ObjectKey) -> Status | None:
    found = ingress_status(db, key)
    return IngressStatus(found) if found is not None else None


def _route(kind: GroupKind) -> Callable[[Mesh, ObjectKey], Status | None]:
    return lambda db, key: RouteStatus(route_status(db, RouteKey(kind, *key)))


_STATUS: Mapping[GroupKind, tuple[KindView[Any], Callable[[Mesh, ObjectKey], Status | None]]] = {
    GATEWAY_CLASS: (gateway_classes, _class),
    GATEWAY: (kubernetes_gateways, lambda db, key: gateway_status(db, key)),
    LISTENER_SET: (listener_sets, lambda db, key: listener_set_status(db, key)),
    HTTP_ROUTE: (http_routes, _route(HTTP_ROUTE)),
    GRPC_ROUTE: (grpc_routes, _route(GRPC_ROUTE)),
    TCP_ROUTE: (tcp_routes, _route(TCP_ROUTE)),
    TLS_ROUTE: (tls_routes, _route(TLS_ROUTE)),
    TLS_POLICY: (backend_tls_policies, lambda db, key: PolicyStatus(backend_tls_status(db, key))),
    TRAFFIC_POLICY: (backend_traffic_policies, lambda db, key: PolicyStatus(traffic_policy_status(db, key))),
    INGRESS: (ingresses, _ingress),
}
KINDS = tuple(_STATUS)


@derived
def objects_with_status(db: Mesh) -> tuple[ObjectRef, ...]:
    """Returns every object that may have a status: none of the Gateway API where that is switched off."""
    shown = KINDS if db.settings.gateway_api.enabled else (INGRESS,)
    return tuple(ObjectRef(kind, *key) for kind in shown for key in _STATUS[kind][0].all_keys(db))


@derived
def status_of(db: Mesh, ref: ObjectRef) -> Status | None:
    """Returns the status of an object; None for one that is not this control plane's, whose status is not touched."""
    return _STATUS[ref.kind][1](db, ObjectKey(ref.namespace, ref.name))


def object_with_status(db: Mesh, ref: ObjectRef) -> Object[Any] | None:
    """Returns an object that may have a status. No node of its own."""
    return _STATUS[ref.kind][0].get(db, ObjectKey(ref.namespace, ref.name))
