"""The waypoints that Gateways declare."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.gateway_api.gateway import Gateway, Listener, RouteNamespaces
from pilot.config.kinds.gateway_api import GATEWAY_CLASS, KUBERNETES_GATEWAY
from pilot.config.object import Object, ObjectKey
from pilot.derive import derived
from pilot.lib.addresses import is_ip
from pilot.mesh.gateway_api.gateways import gateway_class_of, routers_of
from pilot.mesh.gateway_api.listeners import listeners_of
from pilot.mesh.gateway_api.namespace_selector import is_allowed
from pilot.mesh.model.waypoint import (
    HBONE,
    HBONE_PORT,
    INBOUND_BINDING,
    PROXY_PROTOCOL,
    WAYPOINT_FOR,
    ApplicationTunnel,
    Waypoint,
    WaypointAddress,
)
from pilot.mesh.registry.gateway_addresses import find_addresses
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.registry.pods import pod_labels, service_account_of
from pilot.mesh.security.policies import GATEWAY_NAME
from pilot.mesh.tables.database import Mesh


@derived
def waypoint(db: Mesh, key: ObjectKey) -> Waypoint | None:
    """Return the waypoint that a Gateway declares, or None if the Gateway does not exist or has no address yet.

    A Gateway whose class belongs to another controller is also a waypoint. Its addresses are taken from its status.
    """
    row = KUBERNETES_GATEWAY.get(db, key) if db.settings.ambient.enabled else None
    address = _address(db, row) if row is not None else None
    if row is None or address is None:
        return None
    of_class = GATEWAY_CLASS.get(db, ObjectKey("", row.spec.gateway_class_name))
    labels, annotations = (of_class.labels, of_class.annotations) if of_class is not None else ({}, {})
    tunnel = parse_binding(row.annotations.get(INBOUND_BINDING, annotations.get(INBOUND_BINDING, "")))
    traffic = row.labels.get(WAYPOINT_FOR, labels.get(WAYPOINT_FOR, "service"))
    return Waypoint(
        key=key, address=address, traffic=traffic, tunnel=tunnel, namespaces=_allowed(row.spec.listeners, tunnel)
    )


def may_attach(db: Mesh, to: Waypoint, namespace: str) -> bool:
    """Return whether services and workloads in a namespace may attach to a waypoint. Not memoised."""
    return is_allowed(db, to.namespaces.from_, to.namespaces.selector, to.key.namespace, namespace)


@derived
def waypoint_accounts(db: Mesh, key: ObjectKey) -> tuple[str, ...]:
    """Return the service accounts of a waypoint's Pods, sorted."""
    accounts = {
        service_account_of(db, pod)
        for pod, labels in pod_labels(db, key.namespace).items()
        if pod.cluster == db.settings.registry.cluster_id and (GATEWAY_NAME, key.name) in labels
    }
    return tuple(sorted(accounts - {""}))


def parse_binding(text: str) -> ApplicationTunnel | None:
    """Return the tunnel that a waypoint's annotation declares, or None if the annotation is invalid.

    ztunnels forward connections to the waypoint through this tunnel. The annotation is `PROTOCOL` or `PROTOCOL/PORT`.
    """
    protocol, slash, port = text.partition("/")
    if slash and not (port.isascii() and port.isdecimal()):
        return None
    if protocol == "PROXY":
        return ApplicationTunnel("PROXY", int(port or 0))
    return ApplicationTunnel("NONE", int(port or 0)) if protocol == "NONE" else None


def _address(db: Mesh, row: Object[Gateway]) -> WaypointAddress | None:
    """Return the HBONE address of a Gateway. Host names are preferred, because IP addresses are reused over time.

    If the Gateway's Services have no endpoints, the addresses in its status are used, so that traffic does not bypass
    the waypoint while none of its Pods is running.
    """
    info = gateway_class_of(db, row.key)
    if info is not None and not info.programmed:
        return None
    addresses: tuple[str, ...] = ()
    if info is not None:
        ports = {one.port for one in listeners_of(db, KUBERNETES_GATEWAY.id, row.key) if one.valid}
        addresses = find_addresses(
            db, routers_of(db, row.key).services, row.namespace, tuple(sorted(ports))
        ).status_addresses(info.addresses)
    return _first(
        addresses or [a.value for a in row.spec.status.addresses],
        row.namespace,
        cluster_network(db, db.settings.registry.cluster_id),
    )


def _first(addresses: Iterable[str], namespace: str, network: str) -> WaypointAddress | None:
    hosts, ips = [a for a in addresses if not is_ip(a)], [a for a in addresses if is_ip(a)]
    if hosts:
        return WaypointAddress(hostname=hosts[0], namespace=namespace)
    return WaypointAddress(network=network, ip=ips[0]) if ips else None


def _allowed(listeners: tuple[Listener, ...], tunnel: ApplicationTunnel | None) -> RouteNamespaces:
    """Return the namespaces that may attach to a waypoint, as its listener declares them.

    The listener is the one that the waypoint's tunnel is bound to or, if the tunnel is not bound, the HBONE listener.
    """
    bound: Iterable[Listener] = ()
    if tunnel is not None and tunnel.port:
        bound = (one for one in listeners if one.port == tunnel.port)
    elif tunnel is not None and tunnel.protocol == "PROXY":
        bound = (one for one in listeners if one.protocol == PROXY_PROTOCOL)
    hbone = (one for one in listeners if (one.protocol, one.port) == (HBONE, HBONE_PORT))
    listener = next(iter(bound), None) or next(hbone, None)
    return listener.allowed_routes.namespaces if listener is not None else RouteNamespaces()
