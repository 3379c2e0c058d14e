"""Listeners of Gateways and ListenerSets: the server of Istio's Gateway that each is, and what is told of it."""

from __future__ import annotations

import msgspec

from pilot.config.gateway_api.gateway import Listener
from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.kinds.gateway_api import GRPC_ROUTE, HTTP_ROUTE, KUBERNETES_GATEWAY, TCP_ROUTE, TLS_ROUTE
from pilot.config.networking.gateway import Port, Server
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.gateway_api.classes import EAST_WEST_CONTROLLER, WAYPOINT_CONTROLLER, ClassInfo
from pilot.mesh.gateway_api.gateways import (
    ListenerKey,
    Owner,
    class_of,
    find_owner,
    gateway_of,
    listener_conflicts,
    port_of,
)
from pilot.mesh.gateway_api.listener_tls import ListenerTLS, listener_tls
from pilot.mesh.gateway_api.namespace_selector import allowed_namespaces
from pilot.mesh.model.condition import Fault, StatusCondition, condition
from pilot.mesh.tables.database import Mesh

ROUTES = (HTTP_ROUTE.id, GRPC_ROUTE.id, TCP_ROUTE.id, TLS_ROUTE.id)
_ROUTES_OF = {
    "HTTP": (HTTP_ROUTE.id, GRPC_ROUTE.id),
    "HTTPS": (HTTP_ROUTE.id, GRPC_ROUTE.id),
    "TCP": (TCP_ROUTE.id,),
    "TLS": (TLS_ROUTE.id,),
}
_NO_ROOTS = ("InvalidCACertificateRef", "InvalidCACertificateKind", "RefNotPermitted")
_FINE = "No errors found"


class BuiltListener(msgspec.Struct, frozen=True, kw_only=True):
    """A listener. `server` is None where there is nothing to listen with; it is used only where the listener is `valid`.

    `gateway`: the Gateway that it is of. `hosts`: as a server has them, `namespace/host`. `kinds`: of the routes that it takes.
    """

    key: ListenerKey
    gateway: ObjectKey
    section: str
    hostname: str
    port: int
    protocol: str
    kinds: tuple[GroupKind, ...]
    server: Server | None = None
    valid: bool = False
    conflicted: bool = False
    conditions: tuple[StatusCondition, ...] = ()


@derived
def built_listener(db: Mesh, key: ListenerKey) -> BuiltListener | None:
    """Returns a listener of a Gateway that this control plane configures; None for any other."""
    owner, at = find_owner(db, key.kind, key.owner), gateway_of(db, key.kind, key.owner)
    gateway = KUBERNETES_GATEWAY.get(db, at) if at is not None else None
    if owner is None or at is None or gateway is None or key.position >= len(owner.spec.listeners):
        return None
    info = class_of(db, at)
    if info is None or not info.programmed:
        return None
    listener = owner.spec.listeners[key.position]
    if reason := listener_conflicts(db, at).get(key, ""):
        return _conflicted(key, at, listener, reason)
    port = port_of(listener)
    tls = listener_tls(db, owner, gateway, listener, port)
    allowed = listener.allowed_routes.namespaces
    names = allowed_namespaces(db, allowed.from_, allowed.selector, owner.namespace)
    hosts = tuple(f"{name}/{listener.hostname or '*'}" for name in names) or (f"~/{listener.hostname or '*'}",)
    return build_listener(key, at, listener, hosts, tls, info)


def build_listener(
    key: ListenerKey, gateway: ObjectKey, listener: Listener, hosts: tuple[str, ...], tls: ListenerTLS, info: ClassInfo
) -> BuiltListener:
    """Returns a listener of a class of Gateways that stands in no other's way. One for tunnels has no server, and takes no routes."""
    port, (kinds, known) = port_of(listener), supported_kinds(listener)
    lacks_tls = tls.settings is None and listener.protocol in ("HTTPS", "TLS")
    fault = _protocol_fault(listener, port, info) or (
        _no_tls(listener) if lacks_tls and key.kind != KUBERNETES_GATEWAY.id else None
    )
    if fault is None and tls.fault is not None and tls.fault.reason in _NO_ROOTS:
        fault = Fault("NoValidCACertificate", tls.fault.message)
    unprogrammed = (
        Fault("Invalid", "Bad TLS configuration")
        if tls.fault is not None or (lacks_tls and key.kind != KUBERNETES_GATEWAY.id)
        else None
    )
    resolved = tls.fault if known else Fault("InvalidRouteKinds", "Invalid route kinds")
    server = Server(port=Port(number=port, protocol=listener.protocol, name="default"), hosts=hosts, tls=tls.settings)
    return BuiltListener(
        key=key,
        gateway=gateway,
        section=listener.name,
        hostname=listener.hostname,
        port=port,
        protocol=listener.protocol,
        kinds=kinds,
        server=None if lacks_tls or is_tunnel(listener, info) else server,
        valid=fault is None and tls.fault is None,
        conditions=(
            condition("Accepted", fault or _unexpected(listener, port, info), "Accepted", _FINE),
            StatusCondition("Conflicted", False, "NoConflicts", _FINE),
            condition("Programmed", unprogrammed, "Programmed", _FINE),
            condition("ResolvedRefs", resolved, "ResolvedRefs", _FINE),
        ),
    )


def _conflicted(key: ListenerKey, gateway: ObjectKey, listener: Listener, reason: str) -> BuiltListener:
    message = "Listener has a conflict with another listener attached to the same Gateway"
    kinds, known = supported_kinds(listener)
    unknown = () if known else (StatusCondition("ResolvedRefs", False, "InvalidRouteKinds", "Invalid route kinds"),)
    return BuiltListener(
        key=key,
        gateway=gateway,
        section=listener.name,
        hostname=listener.hostname,
        port=port_of(listener),
        protocol=listener.protocol,
        kinds=kinds,
        conflicted=True,
        conditions=(
            StatusCondition("Accepted", False, reason, message),
            StatusCondition("Conflicted", True, reason, message),
            StatusCondition("Programmed", False, reason, message),
            *unknown,
        ),
    )


def supported_kinds(listener: Listener) -> tuple[tuple[GroupKind, ...], bool]:
    """Returns the kinds of routes that a listener takes, and whether they are all that it asks for."""
    known = _ROUTES_OF.get(listener.protocol, ())
    if listener.protocol == "TLS" and listener.tls is not None and listener.tls.mode == "Terminate":
        known = (*known, TCP_ROUTE.id)
    asked = [
        GroupKind(GATEWAY_API if one.group is None else one.group, one.kind) for one in listener.allowed_routes.kinds
    ]
    if not asked:
        return known, True
    return tuple(kind for kind in known if kind in asked), set(asked) <= set(known)


def is_tunnel(listener: Listener, info: ClassInfo) -> bool:
    """Returns whether a listener is for HBONE; all of a waypoint are taken for such."""
    return info.tunnels and (listener.protocol == "HBONE" or info.controller == WAYPOINT_CONTROLLER)


def _unexpected(listener: Listener, port: int, info: ClassInfo) -> Fault | None:
    """Returns how a listener of a class for tunnels is unlike those that are expected of it; it does no harm."""
    hbone, mode = (port, listener.protocol) == (15008, "HBONE"), listener.tls.mode if listener.tls is not None else ""
    if info.controller == WAYPOINT_CONTROLLER and not hbone:
        return Fault("UnsupportedProtocol", 'Expected a single listener on port 15008 with protocol "HBONE"')
    passes = port != 15008 and (listener.protocol, mode) == ("TLS", "Passthrough")
    if info.controller == EAST_WEST_CONTROLLER and not (passes or (hbone and mode == "Terminate")):
        either = 'port 15008 with protocol "HBONE" and TLS.Mode == Terminate, or TLS with TLS.Mode == Passthrough'
        return Fault("UnsupportedProtocol", f"East-west gateway listeners must be either {either}")
    return None


def _protocol_fault(listener: Listener, port: int, info: ClassInfo) -> Fault | None:
    protocol = listener.protocol
    if not port:
        return Fault("UnsupportedProtocol", f"protocol {protocol} requires a port to be set")
    if protocol in _ROUTES_OF or (info.tunnels and protocol == "HBONE"):
        return None
    if protocol == "HBONE":
        return Fault("UnsupportedProtocol", f'protocol "{protocol}" is only supported for waypoint proxies')
    hint = f'. hint: "{protocol.upper()}" (uppercase) may be supported' if protocol.upper() in _ROUTES_OF else ""
    return Fault("UnsupportedProtocol", f'protocol "{protocol}" is unsupported{hint}')


def _no_tls(listener: Listener) -> Fault:
    return Fault("UnsupportedProtocol", f"protocol is {listener.protocol} but no TLS section is defined")


def owned_listeners(db: Mesh, kind: GroupKind, owner: ObjectKey) -> tuple[BuiltListener, ...]:
    """Returns the listeners of a Gateway or ListenerSet, in order. No node of its own."""
    found: Owner | None = find_owner(db, kind, owner)
    count = len(found.spec.listeners) if found is not None else 0
    return tuple(one for n in range(count) if (one := built_listener(db, ListenerKey(kind, owner, n))) is not None)
