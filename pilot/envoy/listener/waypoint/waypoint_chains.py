"""Derives the filter chains of a waypoint: for each port of a service behind it, and for workloads that are addressed directly.

A service's chains depend on that service, what is attached to it, and what all waypoints of its kind have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.route.v3 import route_pb2

from pilot.config.networking.virtual_service import RouteDestination
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.cluster.endpoint_discovery import is_dynamic
from pilot.envoy.cluster.stat_name import build_stat_name
from pilot.envoy.cluster.vip_clusters import VipKey, vip_ports
from pilot.envoy.listener.extension_filters import OTHER_PORTS
from pilot.envoy.listener.filter_chain import build_chain
from pilot.envoy.listener.l4_rules import L4Client, can_match
from pilot.envoy.listener.listener_options import listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ChainParts
from pilot.envoy.listener.manager_template import ManagerKey, http_template_of, with_routes
from pilot.envoy.names import HTTP, TCP
from pilot.envoy.network_filter.set_filter_state import CONNECT_AUTHORITY, build_destination
from pilot.envoy.network_filter.tcp_filters import build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, TcpSettings, tcp_settings
from pilot.envoy.route.route_destination import destination_cluster
from pilot.envoy.route.waypoint_routes import (
    build_default_vip_configuration,
    default_vip_action,
    find_destination_ref,
    find_waypoint_destination,
    vip_routes,
    waypoint_virtual_services,
)
from pilot.lib.addresses import joined
from pilot.mesh.model.ambient import uses_double_hbone
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.model.virtual_addresses import virtual_addresses
from pilot.mesh.proxies.waypoint import ServingKey, listening_for, service_target
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule

DIRECT_TCP, DIRECT_HTTP = "direct-tcp", "direct-http"
_Filters = list[listener_components_pb2.Filter]


class ServedPort(NamedTuple):
    """Says what is spoken on a port of a service: HTTP, TCP or both, each with a chain; `tls`: it is TLS."""

    number: int
    spoken: tuple[str, ...]
    tls: bool


class ServiceChains(NamedTuple):
    """Holds the chains of a service, without tracing, and by what they are chosen; `listening` says how the service is traced."""

    hostname: str
    addresses: tuple[str, ...]
    ports: tuple[ServedPort, ...]
    chains: tuple[ChainParts, ...]
    listening: ListeningFacet


@derived
def service_chains(db: Mesh, ref: ServiceRef, by: ServingKey) -> ServiceChains | None:
    """Returns the chains of a service; None where it is gone."""
    found = service(db, ref)
    if found is None:
        return None
    listening, ports = listening_for(db, by, service_target(found)), tuple(vip_ports(found))
    addresses = virtual_addresses(found, by.families, one=False)
    chains = (_chain(db, found, port, speaks, by, listening, addresses) for port, spoken in ports for speaks in spoken)
    served = (ServedPort(port.number, spoken, port.protocol.is_tls) for port, spoken in ports)
    return ServiceChains(ref.hostname, tuple(sorted(set(addresses))), tuple(served), tuple(chains), listening)


def _chain(
    db: Mesh,
    found: Service,
    port: Port,
    speaks: str,
    by: ServingKey,
    listening: ListeningFacet,
    addresses: tuple[str, ...],
) -> ChainParts:
    name = VipKey(found.ref, port.number, speaks).name
    first: _Filters = []
    if uses_double_hbone(db.settings.ambient) and addresses:
        first.append(build_destination(joined(addresses[0], port.number)))
    if speaks == TCP:
        return build_chain(None, [*first, *_tcp_filters(db, found, port, by, listening)], name=name)
    kind = ManagerKey(
        grpc_web=port.protocol is Protocol.GRPC_WEB,
        http2=port.protocol.is_http2,
        dynamic_host=found.hostname if is_dynamic(found) else "",
    )
    return build_chain(
        None, first, _manager(db, kind, listening, port.number, vip_routes(db, found.ref, port.number, by)), name=name
    )


def _manager(
    db: Mesh, kind: ManagerKey, listening: ListeningFacet, port: int, routes: route_pb2.RouteConfiguration
) -> bytes:
    """Returns a manager without tracing. Extensions that name ports are not for it, for a service has all of its ports behind one waypoint."""
    return http_template_of(db, kind, listening, OTHER_PORTS) + with_routes(f"inbound_0.0.0.0_{port};", routes)


def _tcp_filters(db: Mesh, found: Service, port: Port, by: ServingKey, listening: ListeningFacet) -> _Filters:
    cluster, pattern = VipKey(found.ref, port.number, TCP).name, listener_defaults(db).inbound_stat_name
    stat_prefix = build_stat_name(pattern, found, port, target_port=None) if pattern else cluster
    route = tcp_route(db, found, port, by, stat_prefix, cluster)
    return build_tcp_filters(
        route, port.protocol, listener_options(db, listening).network, port.number, inbound=True, guarded=True
    )


@derived
def direct_chains(db: Mesh, by: ServingKey) -> tuple[ChainParts, ...]:
    """Returns the chains of workloads that are addressed directly, without any service: what a policy of the waypoint lets through is sent on."""
    cluster = names.ENCAP_CLUSTER
    network = listener_options(db, by.listening).network
    route = TcpRoute(cluster, ((cluster, 0),), settings=TcpSettings(idle_timeout=by.listening.idle_timeout))
    tcp = build_tcp_filters(route, Protocol.TCP, network, 0, inbound=True, guarded=True)
    routes = build_default_vip_configuration(cluster, 0, ":0/*", ["*"], default_vip_action(db, None, cluster, by))
    manager = _manager(db, ManagerKey(), by.listening, 0, routes)
    return build_chain(None, [CONNECT_AUTHORITY, *tcp], name=DIRECT_TCP), build_chain(
        None, [CONNECT_AUTHORITY], manager, name=DIRECT_HTTP
    )


def chain_names(served: ServiceChains) -> Iterator[tuple[ServedPort, dict[str, str]]]:
    """Yields the ports of a service, each with the names of its chains by what they speak."""
    for port in served.ports:
        yield port, {s: names.vip_cluster(port.number, s, served.hostname) for s in (HTTP, TCP) if s in port.spoken}


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
            if not tls.match or any(m.sni_hosts == (ref.hostname,) and can_match(m, _ANYBODY, port) for m in tls.match):
                return one.namespace, tls.route
    for one in found:
        for tcp in one.spec.tcp:
            if not tcp.match or any(can_match(m, _ANYBODY, port) for m in tcp.match):
                return one.namespace, tcp.route
    return "", ()


def _cluster(db: Mesh, to: RouteDestination, owner: str, port: int, by: ServingKey) -> str:
    known = find_waypoint_destination(db, to.destination.host, owner, by) if to.destination is not None else None
    return destination_cluster(to.destination, known, port, waypoint=True)
