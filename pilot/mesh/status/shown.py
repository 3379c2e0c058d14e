"""Statuses as they are written, but for what only who writes them knows: when a condition changed, and of which generation it tells."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import LISTENER_SET
from pilot.lib.addresses import is_ip
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.status.gateways import CollectedGatewayStatus, ListenerStatus
from pilot.mesh.status.objects import (
    BackendStatus,
    ClassStatus,
    IngressStatus,
    ObjectConditions,
    PolicyStatus,
    PoolStatus,
    RouteStatus,
    Status,
)
from pilot.mesh.status.policies import AncestorStatus

Plain = dict[str, Any]
MESH_CONTROLLER = "istio.io/mesh-controller"


@functools.singledispatch
def _show(status: Any, kind: GroupKind, controller: str) -> Plain:
    raise TypeError(type(status))


def show_status(status: Status, kind: GroupKind, controller: str) -> Plain:
    """Returns the status of an object of a kind as plain data. `controller`: the name that entries of lists are told apart by."""
    return _show(status, kind, controller)


def show_conditions(conditions: Iterable[StatusCondition]) -> list[Plain]:
    """Returns conditions as plain data."""
    return [{"type": c.type, "status": str(c.status), "reason": c.reason, "message": c.message} for c in conditions]


@_show.register
def _(status: ClassStatus, kind: GroupKind, controller: str) -> Plain:
    return {"conditions": show_conditions(status.conditions)}


@_show.register
def _(status: ObjectConditions, kind: GroupKind, controller: str) -> Plain:
    return {"conditions": show_conditions(status.conditions)}


@_show.register
def _(status: CollectedGatewayStatus, kind: GroupKind, controller: str) -> Plain:
    numbered = kind == LISTENER_SET.id
    shown: Plain = {
        "conditions": show_conditions(status.conditions),
        "listeners": [_listener(one, numbered) for one in status.listeners],
    }
    if kind == LISTENER_SET.id:
        return shown
    sets = {"attachedListenerSets": status.sets} if status.sets else {}
    return {
        "addresses": [{"type": "IPAddress" if is_ip(a) else "Hostname", "value": a} for a in status.addresses],
        **shown,
        **sets,
    }


def _listener(one: ListenerStatus, numbered: bool) -> Plain:
    kinds = [{"group": kind.group, "kind": kind.name} for kind in one.kinds]
    port = {"port": one.port} if numbered else {}
    return {
        "name": one.name,
        **port,
        "supportedKinds": kinds,
        "attachedRoutes": one.attached,
        "conditions": show_conditions(one.conditions),
    }


@_show.register(RouteStatus)
@_show.register(PoolStatus)
def _(status: RouteStatus | PoolStatus, kind: GroupKind, controller: str) -> Plain:
    parents = ((one.parent, one.conditions) for one in status.parents)
    return {
        "parents": [
            {"parentRef": show_parent(ref), "controllerName": controller, "conditions": show_conditions(told)}
            for ref, told in parents
        ]
    }


@_show.register
def _(status: PolicyStatus, kind: GroupKind, controller: str) -> Plain:
    return {"ancestors": [_ancestor("ancestorRef", one, controller) for one in status.ancestors]}


@_show.register
def _(status: BackendStatus, kind: GroupKind, controller: str) -> Plain:
    return {"parents": [_ancestor("parentRef", one, controller) for one in status.parents]}


def _ancestor(field: str, one: AncestorStatus, controller: str) -> Plain:
    by = MESH_CONTROLLER if one.mesh else controller
    return {field: show_parent(one.ancestor), "controllerName": by, "conditions": show_conditions(one.conditions)}


@_show.register
def _(status: IngressStatus, kind: GroupKind, controller: str) -> Plain:
    return {"loadBalancer": {"ingress": [{"ip" if is_ip(a) else "hostname": a} for a in status.addresses]}}


def show_parent(ref: ParentReference) -> Plain:
    """Returns a reference as plain data."""
    said = {"namespace": ref.namespace, "sectionName": ref.section_name, "port": ref.port}
    return {
        "group": ref.group,
        "kind": ref.kind,
        "name": ref.name,
        **{field: value for field, value in said.items() if value is not None},
    }
