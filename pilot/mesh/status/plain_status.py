"""Converts statuses to plain data. The writer adds transition times and observed generations."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import LISTENER_SET
from pilot.lib.addresses import is_ip
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.status.gateway_status import GatewayStatus, ListenerStatus
from pilot.mesh.status.object_status import (
    BackendStatus,
    ClassStatus,
    IngressStatus,
    ObjectConditions,
    PolicyStatus,
    PoolStatus,
    RouteStatus,
    Status,
)
from pilot.mesh.status.policy_status import AncestorStatus

Plain = dict[str, Any]
MESH_CONTROLLER = "istio.io/mesh-controller"


@functools.singledispatch
def _to_plain(status: Any, kind: GroupKind, controller: str) -> Plain:
    raise TypeError(type(status))


def plain_status(status: Status, kind: GroupKind, controller: str) -> Plain:
    """Return a status as plain data. `controller` is the controller name in the list entries of this control plane."""
    return _to_plain(status, kind, controller)


def plain_conditions(conditions: Iterable[StatusCondition]) -> list[Plain]:
    """Return conditions as plain data."""
    return [
        {
            "type": condition.type,
            "status": str(condition.status),
            "reason": condition.reason,
            "message": condition.message,
        }
        for condition in conditions
    ]


@_to_plain.register
def _(status: ClassStatus, kind: GroupKind, controller: str) -> Plain:
    features = {"supportedFeatures": [{"name": name} for name in status.features]} if status.features else {}
    return {"conditions": plain_conditions(status.conditions), **features}


@_to_plain.register
def _(status: ObjectConditions, kind: GroupKind, controller: str) -> Plain:
    return {"conditions": plain_conditions(status.conditions)}


@_to_plain.register
def _(status: GatewayStatus, kind: GroupKind, controller: str) -> Plain:
    numbered = kind == LISTENER_SET.id
    plain: Plain = {
        "conditions": plain_conditions(status.conditions),
        "listeners": [_listener(listener, numbered) for listener in status.listeners],
    }
    if kind == LISTENER_SET.id:
        return plain
    sets = {"attachedListenerSets": status.sets} if status.sets else {}
    return {
        "addresses": [
            {"type": "IPAddress" if is_ip(address) else "Hostname", "value": address} for address in status.addresses
        ],
        **plain,
        **sets,
    }


def _listener(listener: ListenerStatus, numbered: bool) -> Plain:
    kinds = [{"group": kind.group, "kind": kind.name} for kind in listener.kinds]
    port = {"port": listener.port} if numbered else {}
    return {
        "name": listener.name,
        **port,
        "supportedKinds": kinds,
        "attachedRoutes": listener.attached,
        "conditions": plain_conditions(listener.conditions),
    }


@_to_plain.register(RouteStatus)
@_to_plain.register(PoolStatus)
def _(status: RouteStatus | PoolStatus, kind: GroupKind, controller: str) -> Plain:
    parents = ((parent.parent, parent.conditions) for parent in status.parents)
    return {
        "parents": [
            {
                "parentRef": plain_parent_ref(ref),
                "controllerName": controller,
                "conditions": plain_conditions(conditions),
            }
            for ref, conditions in parents
        ]
    }


@_to_plain.register
def _(status: PolicyStatus, kind: GroupKind, controller: str) -> Plain:
    return {"ancestors": [_ancestor("ancestorRef", ancestor, controller) for ancestor in status.ancestors]}


@_to_plain.register
def _(status: BackendStatus, kind: GroupKind, controller: str) -> Plain:
    return {"parents": [_ancestor("parentRef", parent, controller) for parent in status.parents]}


def _ancestor(field: str, ancestor: AncestorStatus, controller: str) -> Plain:
    controller_name = MESH_CONTROLLER if ancestor.mesh else controller
    return {
        field: plain_parent_ref(ancestor.ancestor),
        "controllerName": controller_name,
        "conditions": plain_conditions(ancestor.conditions),
    }


@_to_plain.register
def _(status: IngressStatus, kind: GroupKind, controller: str) -> Plain:
    return {
        "loadBalancer": {"ingress": [{"ip" if is_ip(address) else "hostname": address} for address in status.addresses]}
    }


def plain_parent_ref(ref: ParentReference) -> Plain:
    """Return a parent reference as plain data."""
    optional = {"namespace": ref.namespace, "sectionName": ref.section_name, "port": ref.port}
    return {
        "group": ref.group,
        "kind": ref.kind,
        "name": ref.name,
        **{field: value for field, value in optional.items() if value is not None},
    }
