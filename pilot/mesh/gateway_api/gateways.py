"""Gateways of the Gateway API as a whole: whose they are, the Services of their routers, and their listeners in order of precedence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.gateway_api.gateway import Gateway, Listener, ListenerSet
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.object import Object, ObjectKey
from pilot.derive import derived
from pilot.mesh.gateway_api.classes import ClassInfo, gateway_class
from pilot.mesh.gateway_api.conflicts import ListenerIdentity, find_conflicts
from pilot.mesh.gateway_api.namespace_selector import is_allowed
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

NAME_OVERRIDE, SERVICE_ACCOUNT = "gateway.istio.io/name-override", "gateway.istio.io/service-account"
SERVICE_TYPE = "networking.istio.io/service-type"
_PORTS = {"HTTP": 80, "HTTPS": 443}


class ListenerKey(NamedTuple):
    """A listener of a Gateway or ListenerSet, by its position there."""

    kind: GroupKind
    owner: ObjectKey
    position: int


class OwnerKey(NamedTuple):
    """A Gateway or ListenerSet."""

    kind: GroupKind
    object: ObjectKey


class GatewayRouters(NamedTuple):
    """The routers of a Gateway: workloads of Services in its namespace, by host name. `account` is the service account that they run as where
    they are deployed for it, "" for any."""

    services: tuple[str, ...] = ()
    account: str = ""
    fault: Fault | None = None


@derived
def class_of(db: Mesh, gateway: ObjectKey) -> ClassInfo | None:
    """Returns the class of a Gateway; None where there is no such Gateway, or it is not this control plane's."""
    row = KUBERNETES_GATEWAY.get(db, gateway)
    return gateway_class(db, row.spec.gateway_class_name) if row is not None else None


def is_managed(db: Mesh, spec: Gateway) -> bool:
    """Returns whether the routers of a Gateway are deployed for it: unless it names Services as its addresses."""
    if not db.settings.gateway_api.manual_deployment or not spec.addresses:
        return True
    return len(spec.addresses) == 1 and spec.addresses[0].type == "IPAddress"


@derived
def routers_of(db: Mesh, gateway: ObjectKey) -> GatewayRouters:
    """Returns the routers of a Gateway of a known class."""
    row, info = KUBERNETES_GATEWAY.get(db, gateway), class_of(db, gateway)
    if row is None or info is None:
        return GatewayRouters()
    if is_managed(db, row.spec):
        default = f"{row.name}-{row.spec.gateway_class_name}" if info.suffix else row.name
        service = row.annotations.get(NAME_OVERRIDE) or default
        return GatewayRouters((_host(db, service, gateway),), row.annotations.get(SERVICE_ACCOUNT) or default)
    return GatewayRouters(_addressed(db, row), "", _address_fault(row))


def _addressed(db: Mesh, row: Object[Gateway]) -> tuple[str, ...]:
    named = (a.value for a in row.spec.addresses if a.type == "Hostname")
    return tuple(name if "." in name else _host(db, name, row.key) for name in named)


def _address_fault(row: Object[Gateway]) -> Fault | None:
    others = [a.value for a in row.spec.addresses if a.type != "Hostname"]
    if others:
        return Fault("UnsupportedAddress", f"only Hostname is supported, ignoring {others}")
    if SERVICE_TYPE in row.annotations:
        return Fault("DeprecatedField", f"annotation {SERVICE_TYPE} has no effect on a Gateway with addresses")
    return None


def _host(db: Mesh, service: str, gateway: ObjectKey) -> str:
    return f"{service}.{gateway.namespace}.svc.{db.settings.registry.domain}"


# -- listeners -------------------------------------------------------------------------------------------------------------


@derived
def gateway_of_set(db: Mesh, key: ObjectKey) -> ObjectKey | None:
    """Returns the Gateway that a ListenerSet names, whether it is there or not; None where it names something else."""
    row = LISTENER_SET.get(db, key)
    if row is None or (row.spec.parent_ref.group, row.spec.parent_ref.kind) != KUBERNETES_GATEWAY.id:
        return None
    return ObjectKey(row.spec.parent_ref.namespace or key.namespace, row.spec.parent_ref.name)


@derived
def attached_sets(db: Mesh, gateway: ObjectKey) -> tuple[ObjectKey, ...]:
    """Returns the ListenerSets that a Gateway takes, oldest first."""
    row, info = KUBERNETES_GATEWAY.get(db, gateway), class_of(db, gateway)
    if row is None or info is None or not info.listener_sets:
        return ()
    found = [o for key in LISTENER_SET.keys(db, "gateway", gateway) if (o := LISTENER_SET.get(db, key)) is not None]
    mine = [o for o in found if gateway_of_set(db, o.key) == gateway and takes_set(db, row, o.namespace)]
    return tuple(o.key for o in sorted(mine, key=lambda o: (o.created, o.namespace, o.name)))


def takes_set(db: Mesh, gateway: Object[Gateway], namespace: str) -> bool:
    """Returns whether a Gateway takes ListenerSets of a namespace. No node of its own."""
    allowed = gateway.spec.allowed_listeners.namespaces
    return is_allowed(db, allowed.from_, allowed.selector, gateway.namespace, namespace)


def port_of(listener: Listener) -> int:
    """Returns the port of a listener: what it says, else that of its protocol, 0 where that has none."""
    return listener.port or _PORTS.get(listener.protocol, 0)


@derived
def listener_conflicts(db: Mesh, gateway: ObjectKey) -> Mapping[ListenerKey, str]:
    """Returns the reasons of listeners of a Gateway and its ListenerSets that give way to another one."""
    row = KUBERNETES_GATEWAY.get(db, gateway)
    listed: list[tuple[ListenerKey, Listener]] = []
    if row is not None:
        listed += ((ListenerKey(KUBERNETES_GATEWAY.id, gateway, n), one) for n, one in enumerate(row.spec.listeners))
    for key in attached_sets(db, gateway):
        found = LISTENER_SET.get(db, key)
        if found is not None:
            listed += ((ListenerKey(LISTENER_SET.id, key, n), one) for n, one in enumerate(found.spec.listeners))
    reasons = find_conflicts(ListenerIdentity(port_of(one), one.protocol, one.hostname) for _, one in listed)
    return {key: reason for (key, _), reason in zip(listed, reasons, strict=True) if reason}


Owner = Object[Gateway] | Object[ListenerSet]


def find_owner(db: Mesh, kind: GroupKind, key: ObjectKey) -> Owner | None:
    """Returns a Gateway or ListenerSet. No node of its own."""
    return KUBERNETES_GATEWAY.get(db, key) if kind == KUBERNETES_GATEWAY.id else LISTENER_SET.get(db, key)


def gateway_of(db: Mesh, kind: GroupKind, key: ObjectKey) -> ObjectKey | None:
    """Returns the Gateway that a Gateway or ListenerSet is, or is of. No node of its own."""
    return key if kind == KUBERNETES_GATEWAY.id else gateway_of_set(db, key)
