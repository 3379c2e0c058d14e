"""Waypoints, by their Gateways."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.gateway_api.gateway import Gateway, Listener, RouteNamespaces
from pilot.config.kinds.gateway_api import GATEWAY_CLASS, KUBERNETES_GATEWAY
from pilot.config.object import Object, ObjectKey
from pilot.derive import derived
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.networks import cluster_network
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
from pilot.mesh.registry.pods import pod_labels, service_account_of
from pilot.mesh.security.policies import GATEWAY_NAME
from pilot.mesh.tables.database import Mesh


@derived
def waypoint(db: Mesh, key: ObjectKey) -> Waypoint | None:
    """Returns the waypoint that a Gateway is; None where there is no such Gateway, or it has no address yet.

    A Gateway of a class that is not this control plane's is one too, by the addresses of its status.
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


def takes(db: Mesh, found: Waypoint, namespace: str) -> bool:
    """Returns whether services and workloads of a namespace may attach to a waypoint. No node of its own."""
    return is_allowed(db, found.namespaces.from_, found.namespaces.selector, found.key.namespace, namespace)


@derived
def waypoint_accounts(db: Mesh, key: ObjectKey) -> tuple[str, ...]:
    """Returns the service accounts that the Pods of a waypoint run as, sorted."""
    found = {
        service_account_of(db, pod)
        for pod, labels in pod_labels(db, key.namespace).items()
        if pod.cluster == db.settings.registry.cluster_id and (GATEWAY_NAME, key.name) in labels
    }
    return tuple(sorted(found - {""}))


def parse_binding(text: str) -> ApplicationTunnel | None:
    """Returns what the annotation of a waypoint says of the way from ztunnel to it, `PROTOCOL` or `PROTOCOL/PORT`; None where it says nothing that
    can be understood."""
    protocol, slash, port = text.partition("/")
    if slash and not (port.isascii() and port.isdecimal()):
        return None
    if protocol == "PROXY":
        return ApplicationTunnel("PROXY", int(port or 0))
    return ApplicationTunnel("NONE", int(port or 0)) if protocol == "NONE" else None


def _address(db: Mesh, row: Object[Gateway]) -> WaypointAddress | None:
    """Returns where a Gateway takes HBONE: a host name rather than an IP address, for these are given to others in time.

    The status counts too where its Services have no endpoints, so that what used a waypoint is not led past it while none of its Pods is there.
    """
    info = gateway_class_of(db, row.key)
    if info is not None and not info.programmed:
        return None
    shown: tuple[str, ...] = ()
    if info is not None:
        ports = {one.port for one in listeners_of(db, KUBERNETES_GATEWAY.id, row.key) if one.valid}
        shown = find_addresses(
            db, routers_of(db, row.key).services, row.namespace, tuple(sorted(ports))
        ).status_addresses(info.addresses)
    return _first(
        shown or [a.value for a in row.spec.status.addresses],
        row.namespace,
        cluster_network(db, db.settings.registry.cluster_id),
    )


def _first(addresses: Iterable[str], namespace: str, network: str) -> WaypointAddress | None:
    hosts, ips = [a for a in addresses if not is_ip(a)], [a for a in addresses if is_ip(a)]
    if hosts:
        return WaypointAddress(hostname=hosts[0], namespace=namespace)
    return WaypointAddress(network=network, ip=ips[0]) if ips else None


def _allowed(listeners: tuple[Listener, ...], tunnel: ApplicationTunnel | None) -> RouteNamespaces:
    """Returns the namespaces that a waypoint is for: by the listener that its binding names, else by the one for HBONE."""
    bound: Iterable[Listener] = ()
    if tunnel is not None and tunnel.port:
        bound = (one for one in listeners if one.port == tunnel.port)
    elif tunnel is not None and tunnel.protocol == "PROXY":
        bound = (one for one in listeners if one.protocol == PROXY_PROTOCOL)
    found = next(iter(bound), None) or next(
        (one for one in listeners if (one.protocol, one.port) == (HBONE, HBONE_PORT)), None
    )
    return found.allowed_routes.namespaces if found is not None else RouteNamespaces()
