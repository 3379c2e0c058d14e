"""Finds where connections to a service behind a waypoint go, whose protocol nobody reads."""

from __future__ import annotations

from pilot.config.networking.virtual_service import RouteDestination
from pilot.envoy.listener.l4_rules import L4Client, can_meet
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, tcp_settings
from pilot.envoy.route.route_destination import destination_cluster
from pilot.envoy.route.waypoint_routes import find_destination_ref, find_waypoint_destination, waypoint_virtual_services
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.proxies.waypoint import ServingKey
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule

_ANYBODY = L4Client("", frozenset())


def tcp_route(db: Mesh, found: Service, port: Port, by: ServingKey, stat_prefix: str, cluster: str) -> TcpRoute:
    """Returns where connections go: as VirtualServices say, else to the service. The settings are those of the first destination. No node of its
    own."""
    owner, routed = _find_route(db, found.ref, port.number, by.scope.namespace)
    first = routed[0].destination if routed else None
    ref = find_destination_ref(db, first.host, owner, by) if first is not None else found.ref
    rule = destination_rule(db, by.scope, ref, by.labels) if ref is not None else None
    subset = first.subset if first is not None and len(routed) == 1 else ""
    settings = tcp_settings(rule.spec if rule is not None else None, subset, by.listening.idle_timeout)
    if len(routed) > 1:
        clusters = tuple((_cluster(db, to, owner, port.number, by), to.weight) for to in routed if to.weight > 0)
        return TcpRoute(stat_prefix, clusters, weighted=True, settings=settings)
    return TcpRoute(
        stat_prefix, ((_cluster(db, routed[0], owner, port.number, by) if routed else cluster, 0),), settings=settings
    )


def _find_route(db: Mesh, ref: ServiceRef, port: int, namespace: str) -> tuple[str, tuple[RouteDestination, ...]]:
    """Returns the namespace of the VirtualService that routes connections to a port of a service, and where they go; () where none does. Rules for
    TLS come before those for TCP, and only those for the service's own name count, for a waypoint does not look into TLS. No node of its own."""
    found = list(waypoint_virtual_services(db, ref, namespace))
    for one in found:
        for tls in one.spec.tls:
            if not tls.match or any(m.sni_hosts == (ref.hostname,) and can_meet(m, _ANYBODY, port) for m in tls.match):
                return one.namespace, tls.route
    for one in found:
        for tcp in one.spec.tcp:
            if not tcp.match or any(can_meet(m, _ANYBODY, port) for m in tcp.match):
                return one.namespace, tcp.route
    return "", ()


def _cluster(db: Mesh, to: RouteDestination, owner: str, port: int, by: ServingKey) -> str:
    known = find_waypoint_destination(db, to.destination.host, owner, by) if to.destination is not None else None
    return destination_cluster(to.destination, known, port, waypoint=True)
