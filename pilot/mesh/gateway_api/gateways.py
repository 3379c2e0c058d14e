"""Gateways of the Gateway API: their class, their routers' Services, and their listeners in order of precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilot.config.gateway_api.gateway import Gateway, Listener, ListenerSet
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.object import Object, ObjectKey
from pilot.derive import derived
from pilot.mesh.gateway_api.gateway_classes import GatewayClassInfo, gateway_class
from pilot.mesh.gateway_api.namespace_selector import is_allowed
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

NAME_OVERRIDE, SERVICE_ACCOUNT = "gateway.istio.io/name-override", "gateway.istio.io/service-account"
SERVICE_TYPE = "networking.istio.io/service-type"
_PORTS = {"HTTP": 80, "HTTPS": 443}


class ListenerKey(NamedTuple):
    """A listener of a Gateway or ListenerSet, identified by its position."""

    kind: GroupKind
    owner: ObjectKey
    position: int


class OwnerKey(NamedTuple):
    """A Gateway or ListenerSet."""

    kind: GroupKind
    object: ObjectKey


class GatewayRouters(NamedTuple):
    """The routers of a Gateway: the workloads of the Services with these hostnames in the Gateway's namespace.

    `account` is the service account of automatically deployed routers, or "" if any service account is accepted.
    """

    services: tuple[str, ...] = ()
    account: str = ""
    fault: Fault | None = None


@derived
def gateway_class_of(db: Mesh, gateway: ObjectKey) -> GatewayClassInfo | None:
    """Return the class of a Gateway, or None if the Gateway does not exist or belongs to another controller."""
    row = KUBERNETES_GATEWAY.get(db, gateway)
    return gateway_class(db, row.spec.gateway_class_name) if row is not None else None


def is_managed(db: Mesh, spec: Gateway) -> bool:
    """Return True if this control plane deploys the Gateway's routers.

    It does not deploy them if the Gateway's addresses name existing Services.
    """
    if not db.settings.gateway_api.manual_deployment or not spec.addresses:
        return True
    return len(spec.addresses) == 1 and spec.addresses[0].type == "IPAddress"


@derived
def routers_of(db: Mesh, gateway: ObjectKey) -> GatewayRouters:
    """Return the routers of a Gateway. The result is empty if the Gateway belongs to another control plane."""
    row, info = KUBERNETES_GATEWAY.get(db, gateway), gateway_class_of(db, gateway)
    if row is None or info is None:
        return GatewayRouters()
    if is_managed(db, row.spec):
        default = f"{row.name}-{row.spec.gateway_class_name}" if info.suffix else row.name
        service = row.annotations.get(NAME_OVERRIDE) or default
        return GatewayRouters((_host(db, service, gateway),), row.annotations.get(SERVICE_ACCOUNT) or default)
    return GatewayRouters(_addressed(db, row), "", _address_fault(row))


def _addressed(db: Mesh, row: Object[Gateway]) -> tuple[str, ...]:
    hostnames = (address.value for address in row.spec.addresses if address.type == "Hostname")
    return tuple(name if "." in name else _host(db, name, row.key) for name in hostnames)


def _address_fault(row: Object[Gateway]) -> Fault | None:
    others = [address.value for address in row.spec.addresses if address.type != "Hostname"]
    if others:
        return Fault("UnsupportedAddress", f"only Hostname is supported, ignoring {others}")
    if SERVICE_TYPE in row.annotations:
        return Fault("DeprecatedField", f"annotation {SERVICE_TYPE} has no effect on a Gateway with addresses")
    return None


def _host(db: Mesh, service: str, gateway: ObjectKey) -> str:
    return f"{service}.{gateway.namespace}.svc.{db.settings.registry.domain}"


# -- listeners ---------------------------------------------------------------------------------------------------------


@derived
def parent_gateway(db: Mesh, key: ObjectKey) -> ObjectKey | None:
    """Return the Gateway that a ListenerSet names, which may not exist, or None if its parent is not a Gateway."""
    row = LISTENER_SET.get(db, key)
    if row is None or (row.spec.parent_ref.group, row.spec.parent_ref.kind) != KUBERNETES_GATEWAY.id:
        return None
    return ObjectKey(row.spec.parent_ref.namespace or key.namespace, row.spec.parent_ref.name)


@derived
def attached_listener_sets(db: Mesh, gateway: ObjectKey) -> tuple[ObjectKey, ...]:
    """Return the ListenerSets that are attached to a Gateway, oldest first."""
    row, info = KUBERNETES_GATEWAY.get(db, gateway), gateway_class_of(db, gateway)
    if row is None or info is None or not info.listener_sets:
        return ()
    candidates = [
        listener_set
        for key in LISTENER_SET.keys(db, "gateway", gateway)
        if (listener_set := LISTENER_SET.get(db, key)) is not None
    ]
    allowed = [
        listener_set
        for listener_set in candidates
        if parent_gateway(db, listener_set.key) == gateway and allows_listener_sets(db, row, listener_set.namespace)
    ]
    return tuple(
        listener_set.key
        for listener_set in sorted(
            allowed, key=lambda listener_set: (listener_set.created, listener_set.namespace, listener_set.name)
        )
    )


def allows_listener_sets(db: Mesh, gateway: Object[Gateway], namespace: str) -> bool:
    """Return True if a Gateway allows ListenerSets in a namespace to attach to it. Not memoised."""
    allowed = gateway.spec.allowed_listeners.namespaces
    return is_allowed(db, allowed.from_, allowed.selector, gateway.namespace, namespace)


def listener_port(listener: Listener) -> int:
    """Return the port of a listener. The default is that of its protocol, or 0 if the protocol has none."""
    return listener.port or _PORTS.get(listener.protocol, 0)


@derived
def listener_conflicts(db: Mesh, gateway: ObjectKey) -> Mapping[ListenerKey, str]:
    """Return the reason of each conflict between the listeners of a Gateway and its ListenerSets, keyed by listener."""
    row = KUBERNETES_GATEWAY.get(db, gateway)
    listeners: list[tuple[ListenerKey, Listener]] = []
    if row is not None:
        listeners += (
            (ListenerKey(KUBERNETES_GATEWAY.id, gateway, position), listener)
            for position, listener in enumerate(row.spec.listeners)
        )
    for key in attached_listener_sets(db, gateway):
        listener_set = LISTENER_SET.get(db, key)
        if listener_set is not None:
            listeners += (
                (ListenerKey(LISTENER_SET.id, key, position), listener)
                for position, listener in enumerate(listener_set.spec.listeners)
            )
    reasons = find_conflicts(
        ListenerIdentity(listener_port(listener), listener.protocol, listener.hostname) for _, listener in listeners
    )
    return {key: reason for (key, _), reason in zip(listeners, reasons, strict=True) if reason}


Owner = Object[Gateway] | Object[ListenerSet]


def find_owner(db: Mesh, kind: GroupKind, key: ObjectKey) -> Owner | None:
    """Return a Gateway or ListenerSet. Not memoised."""
    return KUBERNETES_GATEWAY.get(db, key) if kind == KUBERNETES_GATEWAY.id else LISTENER_SET.get(db, key)


def owning_gateway(db: Mesh, kind: GroupKind, key: ObjectKey) -> ObjectKey | None:
    """Return the Gateway that a listener's owner belongs to: the owner itself, or the parent of a ListenerSet. Not
    memoised."""
    return key if kind == KUBERNETES_GATEWAY.id else parent_gateway(db, key)


# -- conflicts between listeners ---------------------------------------------------------------------------------------


PROTOCOL_CONFLICT, HOSTNAME_CONFLICT = "ProtocolConflict", "HostnameConflict"
_BY_HOST = ("HTTP", "HTTPS", "TLS")
_BY_PORT = ("TCP", "UDP")


class ListenerIdentity(NamedTuple):
    """The values that distinguish a listener from others. An empty hostname matches every host."""

    port: int
    protocol: str
    hostname: str


def find_conflicts(identities: Iterable[ListenerIdentity]) -> tuple[str, ...]:
    """Return the conflict reason of each listener, or "" if it has no conflict. The listeners are in order of
    precedence.

    A conflicted listener does not conflict with later listeners.
    """
    accepted: list[ListenerIdentity] = []
    reasons = []
    for identity in identities:
        reason = next((conflict for older in accepted if (conflict := _conflict(identity, older))), "")
        reasons.append(reason)
        if not reason:
            accepted.append(identity)
    return tuple(reasons)


def _conflict(new: ListenerIdentity, older: ListenerIdentity) -> str:
    if new.port != older.port:
        return ""
    if new.protocol in _BY_HOST and older.protocol in _BY_HOST:
        if (new.hostname or "*") != (older.hostname or "*"):
            return ""
        return HOSTNAME_CONFLICT if new.protocol == older.protocol else PROTOCOL_CONFLICT
    if new.protocol == older.protocol:
        return PROTOCOL_CONFLICT if new.protocol in _BY_PORT else HOSTNAME_CONFLICT
    protocols = (*_BY_HOST, *_BY_PORT)
    return PROTOCOL_CONFLICT if new.protocol in protocols and older.protocol in protocols else ""
