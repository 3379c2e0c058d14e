"""Listeners of Gateways and ListenerSets, converted to servers of Istio Gateways and to status conditions."""

from __future__ import annotations

import msgspec

from pilot.config.gateway_api.gateway import Listener
from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.kinds.gateway_api import GRPC_ROUTE, HTTP_ROUTE, KUBERNETES_GATEWAY, TCP_ROUTE, TLS_ROUTE
from pilot.config.networking.gateway import Port, Server
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.gateway_api.gateway_classes import EAST_WEST_CONTROLLER, WAYPOINT_CONTROLLER, GatewayClassInfo
from pilot.mesh.gateway_api.gateways import (
    ListenerKey,
    Owner,
    find_owner,
    gateway_class_of,
    listener_conflicts,
    listener_port,
    owning_gateway,
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
_ROOT_FAULTS = ("InvalidCACertificateRef", "InvalidCACertificateKind", "RefNotPermitted")
_NO_ERRORS = "No errors found"


class GatewayListener(msgspec.Struct, frozen=True, kw_only=True):
    """A listener of the Gateway API.

    - `gateway`: the Gateway to which it belongs.
    - `kinds`: the kinds of routes that it accepts.
    - `server`: the server that it is converted to, or None if it cannot listen. The server is used only if the listener
      is `valid`.
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
def gateway_listener(db: Mesh, key: ListenerKey) -> GatewayListener | None:
    """Return a listener, or None if it does not exist or this control plane does not configure its Gateway."""
    owner, gateway_key = find_owner(db, key.kind, key.owner), owning_gateway(db, key.kind, key.owner)
    gateway = KUBERNETES_GATEWAY.get(db, gateway_key) if gateway_key is not None else None
    if owner is None or gateway_key is None or gateway is None or key.position >= len(owner.spec.listeners):
        return None
    info = gateway_class_of(db, gateway_key)
    if info is None or not info.programmed:
        return None
    listener = owner.spec.listeners[key.position]
    if reason := listener_conflicts(db, gateway_key).get(key, ""):
        return _conflicted(key, gateway_key, listener, reason)
    port = listener_port(listener)
    tls = listener_tls(db, owner, gateway, listener, port)
    allowed = listener.allowed_routes.namespaces
    namespaces = allowed_namespaces(db, allowed.from_, allowed.selector, owner.namespace)
    hosts = tuple(f"{namespace}/{listener.hostname or '*'}" for namespace in namespaces) or (
        f"~/{listener.hostname or '*'}",
    )
    return build_listener(key, gateway_key, listener, hosts, tls, info)


def build_listener(
    key: ListenerKey,
    gateway: ObjectKey,
    listener: Listener,
    hosts: tuple[str, ...],
    tls: ListenerTLS,
    info: GatewayClassInfo,
) -> GatewayListener:
    """Return a listener that has no conflicts. HBONE listeners have no server and accept no routes."""
    port, (kinds, kinds_supported) = listener_port(listener), supported_kinds(listener)
    lacks_tls = tls.settings is None and listener.protocol in ("HTTPS", "TLS")
    fault = _protocol_fault(listener, port, info) or (
        _no_tls(listener) if lacks_tls and key.kind != KUBERNETES_GATEWAY.id else None
    )
    if fault is None and tls.fault is not None and tls.fault.reason in _ROOT_FAULTS:
        fault = Fault("NoValidCACertificate", tls.fault.message)
    unprogrammed = (
        Fault("Invalid", "Bad TLS configuration")
        if tls.fault is not None or (lacks_tls and key.kind != KUBERNETES_GATEWAY.id)
        else None
    )
    resolved = tls.fault if kinds_supported else Fault("InvalidRouteKinds", "Invalid route kinds")
    server = Server(port=Port(number=port, protocol=listener.protocol, name="default"), hosts=hosts, tls=tls.settings)
    return GatewayListener(
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
            condition("Accepted", fault or _tunnel_class_fault(listener, port, info), "Accepted", _NO_ERRORS),
            StatusCondition("Conflicted", False, "NoConflicts", _NO_ERRORS),
            condition("Programmed", unprogrammed, "Programmed", _NO_ERRORS),
            condition("ResolvedRefs", resolved, "ResolvedRefs", _NO_ERRORS),
        ),
    )


def _conflicted(key: ListenerKey, gateway: ObjectKey, listener: Listener, reason: str) -> GatewayListener:
    message = "Listener has a conflict with another listener attached to the same Gateway"
    kinds, kinds_supported = supported_kinds(listener)
    unresolved = (
        () if kinds_supported else (StatusCondition("ResolvedRefs", False, "InvalidRouteKinds", "Invalid route kinds"),)
    )
    return GatewayListener(
        key=key,
        gateway=gateway,
        section=listener.name,
        hostname=listener.hostname,
        port=listener_port(listener),
        protocol=listener.protocol,
        kinds=kinds,
        conflicted=True,
        conditions=(
            StatusCondition("Accepted", False, reason, message),
            StatusCondition("Conflicted", True, reason, message),
            StatusCondition("Programmed", False, reason, message),
            *unresolved,
        ),
    )


def supported_kinds(listener: Listener) -> tuple[tuple[GroupKind, ...], bool]:
    """Return the kinds of routes that a listener accepts, and whether they include all kinds that it requests."""
    supported = _ROUTES_OF.get(listener.protocol, ())
    if listener.protocol == "TLS" and listener.tls is not None and listener.tls.mode == "Terminate":
        supported = (*supported, TCP_ROUTE.id)
    requested = [
        GroupKind(GATEWAY_API if allowed.group is None else allowed.group, allowed.kind)
        for allowed in listener.allowed_routes.kinds
    ]
    if not requested:
        return supported, True
    return tuple(kind for kind in supported if kind in requested), set(requested) <= set(supported)


def is_tunnel(listener: Listener, info: GatewayClassInfo) -> bool:
    """Return True if a listener accepts HBONE. All listeners of a waypoint do."""
    return info.tunnels and (listener.protocol == "HBONE" or info.controller == WAYPOINT_CONTROLLER)


def _tunnel_class_fault(listener: Listener, port: int, info: GatewayClassInfo) -> Fault | None:
    """Return a fault if waypoints or east-west gateways do not support the listener. The fault is only reported in the
    status."""
    hbone, mode = (port, listener.protocol) == (15008, "HBONE"), listener.tls.mode if listener.tls is not None else ""
    if info.controller == WAYPOINT_CONTROLLER and not hbone:
        return Fault("UnsupportedProtocol", 'Expected a single listener on port 15008 with protocol "HBONE"')
    is_passthrough = port != 15008 and (listener.protocol, mode) == ("TLS", "Passthrough")
    if info.controller == EAST_WEST_CONTROLLER and not (is_passthrough or (hbone and mode == "Terminate")):
        expected = 'port 15008 with protocol "HBONE" and TLS.Mode == Terminate, or TLS with TLS.Mode == Passthrough'
        return Fault("UnsupportedProtocol", f"East-west gateway listeners must be either {expected}")
    return None


def _protocol_fault(listener: Listener, port: int, info: GatewayClassInfo) -> Fault | None:
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


def listeners_of(db: Mesh, kind: GroupKind, owner: ObjectKey) -> tuple[GatewayListener, ...]:
    """Return the listeners of a Gateway or ListenerSet, in order. Not memoised."""
    row: Owner | None = find_owner(db, kind, owner)
    count = len(row.spec.listeners) if row is not None else 0
    return tuple(
        listener
        for position in range(count)
        if (listener := gateway_listener(db, ListenerKey(kind, owner, position))) is not None
    )
