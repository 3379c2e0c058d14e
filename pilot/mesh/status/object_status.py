"""The status of every object that has one.

These are Gateway API objects, Ingresses and, in an ambient mesh, objects whose conditions report on waypoints and
ztunnels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol

from pilot.config.group_kind import GroupKind
from pilot.config.kind import Kind, RegistryKind
from pilot.config.kinds.gateway_api import (
    BACKEND,
    BACKEND_TLS_POLICY,
    BACKEND_TRAFFIC_POLICY,
    GATEWAY_CLASS,
    GRPC_ROUTE,
    HTTP_ROUTE,
    INFERENCE_POOL,
    KUBERNETES_GATEWAY,
    LISTENER_SET,
    TCP_ROUTE,
    TLS_ROUTE,
)
from pilot.config.kinds.istio import AUTHORIZATION_POLICY, SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import INGRESS, SERVICE
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.derive import derived, updated
from pilot.lib.long_tuples import Mapped, map_items
from pilot.mesh.ambient.conditions import (
    policy_conditions,
    service_conditions,
    service_entry_conditions,
    workload_entry_conditions,
)
from pilot.mesh.lowering.gateway_api.routes import RouteKey
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.status.gateway_status import (
    GatewayStatus,
    class_features,
    class_status,
    gateway_status,
    listener_set_status,
)
from pilot.mesh.status.ingress_status import ingress_status
from pilot.mesh.status.policy_status import (
    AncestorStatus,
    backend_status,
    backend_tls_status,
    traffic_policy_status,
)
from pilot.mesh.status.pool_status import pool_status
from pilot.mesh.status.route_status import ParentStatus, route_status
from pilot.mesh.tables.database import Mesh


class ListedKind(Protocol):
    """A kind whose objects can be listed, and read by namespace and name."""

    def all_keys(self, db: Mesh) -> tuple[ObjectKey, ...]: ...
    def get(self, db: Mesh, key: ObjectKey) -> Object[Any] | None: ...


class LocalObjects(NamedTuple):
    """The objects in the local cluster, for a kind that is read from every cluster."""

    kind: RegistryKind[Any]

    def all_keys(self, db: Mesh) -> tuple[ObjectKey, ...]:
        return tuple(key.object for key in self.kind.all_keys(db) if key.cluster == db.settings.registry.cluster_id)

    def get(self, db: Mesh, key: ObjectKey) -> Object[Any] | None:
        return self.kind.get(db, RegistryKey(db.settings.registry.cluster_id, *key))


class ClassStatus(NamedTuple):
    """The status of a GatewayClass. `features` are the names of supported features."""

    conditions: tuple[StatusCondition, ...]
    features: tuple[str, ...]


class RouteStatus(NamedTuple):
    """The status of a route, for the parents that this control plane manages."""

    parents: tuple[ParentStatus, ...] = ()


class PoolStatus(NamedTuple):
    """The status of an InferencePool, for the Gateways that this control plane manages."""

    parents: tuple[ParentStatus, ...] = ()


class PolicyStatus(NamedTuple):
    """The status of a policy."""

    ancestors: tuple[AncestorStatus, ...] = ()


class BackendStatus(NamedTuple):
    """The status of an XBackend."""

    parents: tuple[AncestorStatus, ...] = ()


class ObjectConditions(NamedTuple):
    """The conditions of an object in an ambient mesh."""

    conditions: tuple[StatusCondition, ...] = ()


class IngressStatus(NamedTuple):
    """The status of an Ingress: IP addresses and hostnames."""

    addresses: tuple[str, ...] = ()


Status = (
    ClassStatus
    | GatewayStatus
    | RouteStatus
    | PoolStatus
    | PolicyStatus
    | BackendStatus
    | IngressStatus
    | ObjectConditions
)


def _class(db: Mesh, key: ObjectKey) -> Status | None:
    conditions = class_status(db, key.name)
    return ClassStatus(conditions, class_features(db, key.name)) if conditions is not None else None


def _ingress(db: Mesh, key: ObjectKey) -> Status | None:
    addresses = ingress_status(db, key)
    return IngressStatus(addresses) if addresses is not None else None


def _backend(db: Mesh, key: ObjectKey) -> Status | None:
    ancestors = backend_status(db, key)
    return BackendStatus(ancestors) if ancestors is not None else None


def _pool(db: Mesh, key: ObjectKey) -> Status | None:
    parents = pool_status(db, key)
    return PoolStatus(parents) if parents is not None else None


def _route(kind: GroupKind) -> Callable[[Mesh, ObjectKey], Status | None]:
    return lambda db, key: RouteStatus(route_status(db, RouteKey(kind, *key)))


_STATUS: Mapping[GroupKind, tuple[Kind[Any], Callable[[Mesh, ObjectKey], Status | None]]] = {
    GATEWAY_CLASS.id: (GATEWAY_CLASS, _class),
    KUBERNETES_GATEWAY.id: (KUBERNETES_GATEWAY, lambda db, key: gateway_status(db, key)),
    LISTENER_SET.id: (LISTENER_SET, lambda db, key: listener_set_status(db, key)),
    HTTP_ROUTE.id: (HTTP_ROUTE, _route(HTTP_ROUTE.id)),
    GRPC_ROUTE.id: (GRPC_ROUTE, _route(GRPC_ROUTE.id)),
    TCP_ROUTE.id: (TCP_ROUTE, _route(TCP_ROUTE.id)),
    TLS_ROUTE.id: (TLS_ROUTE, _route(TLS_ROUTE.id)),
    BACKEND_TLS_POLICY.id: (BACKEND_TLS_POLICY, lambda db, key: PolicyStatus(backend_tls_status(db, key))),
    BACKEND_TRAFFIC_POLICY.id: (
        BACKEND_TRAFFIC_POLICY,
        lambda db, key: PolicyStatus(traffic_policy_status(db, key)),
    ),
    BACKEND.id: (BACKEND, _backend),
    INFERENCE_POOL.id: (INFERENCE_POOL, _pool),
    INGRESS.id: (INGRESS, _ingress),
}
KINDS = tuple(_STATUS)
_CONDITIONS: Mapping[GroupKind, tuple[ListedKind, Callable[[Mesh, ObjectKey], tuple[StatusCondition, ...] | None]]] = {
    SERVICE.id: (LocalObjects(SERVICE), lambda db, key: service_conditions(db, key)),
    SERVICE_ENTRY.id: (SERVICE_ENTRY, lambda db, key: service_entry_conditions(db, key)),
    WORKLOAD_ENTRY.id: (LocalObjects(WORKLOAD_ENTRY), lambda db, key: workload_entry_conditions(db, key)),
    AUTHORIZATION_POLICY.id: (AUTHORIZATION_POLICY, lambda db, key: policy_conditions(db, key)),
}
AMBIENT_KINDS = tuple(_CONDITIONS)
"""Kinds whose conditions report on waypoints and ztunnels."""


_Refs = Mapped[ObjectKey, ObjectRef]


@derived
def objects_with_status(db: Mesh) -> tuple[ObjectRef, ...]:
    """Return the references of all objects that may have a status.

    Gateway API objects are included only if the Gateway API is enabled, and objects with ambient conditions only in an
    ambient mesh.
    """
    kinds = KINDS if db.settings.gateway_api.enabled else (INGRESS.id,)
    ambient_kinds = AMBIENT_KINDS if db.settings.ambient.enabled and db.settings.ambient.status else ()
    return tuple(chain.from_iterable(_refs_of(db, kind).results for kind in (*kinds, *ambient_kinds)))


@updated
def _refs_of(db: Mesh, previous: _Refs | None, kind: GroupKind) -> _Refs:
    return map_items(lambda key: ObjectRef(kind, *key), _listed(kind).all_keys(db), previous or Mapped())


def _listed(kind: GroupKind) -> ListedKind:
    return _STATUS[kind][0] if kind in _STATUS else _CONDITIONS[kind][0]


@derived
def object_status(db: Mesh, ref: ObjectRef) -> Status | None:
    """Return the status of an object, or None if another controller writes it."""
    key = ObjectKey(ref.namespace, ref.name)
    if ref.kind in _STATUS:
        return _STATUS[ref.kind][1](db, key)
    conditions = _CONDITIONS[ref.kind][1](db, key)
    return ObjectConditions(conditions) if conditions is not None else None


def object_with_status(db: Mesh, ref: ObjectRef) -> Object[Any] | None:
    """Return an object that may have a status. Not memoised."""
    return _listed(ref.kind).get(db, ObjectKey(ref.namespace, ref.name))
