"""The filter chains of a waypoint.

There are chains for each port of the services behind it, and for workloads that are addressed directly. A service's
chains depend on the service, on the objects attached to it, and on settings that all waypoints of the same kind share.
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
from pilot.envoy.http_filter.dynamic_forward_proxy import build_dns_cache
from pilot.envoy.listener.extension_filters import OTHER_PORTS
from pilot.envoy.listener.filter_chain import build_chain
from pilot.envoy.listener.l4_rules import L4Client, can_match
from pilot.envoy.listener.listener_options import listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ChainParts
from pilot.envoy.listener.manager_template import ManagerKey, inline_route_fields, manager_template
from pilot.envoy.listener.policy_copies import limit_copies
from pilot.envoy.names import HTTP, TCP
from pilot.envoy.network_filter.set_filter_state import CONNECT_AUTHORITY, build_destination
from pilot.envoy.network_filter.simple_network_filters import build_sni_dynamic_forward_proxy
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
from pilot.mesh.model.ambient_features import uses_double_hbone
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
    """A port of a service and its protocols: HTTP, TCP or both. There is one chain for each protocol.

    `tls` is set if the port carries TLS.
    """

    number: int
    protocols: tuple[str, ...]
    tls: bool


class ServiceChains(NamedTuple):
    """The chains of a service without tracing, and the addresses and ports that select them.

    `listening` determines the tracing.
    """

    hostname: str
    addresses: tuple[str, ...]
    ports: tuple[ServedPort, ...]
    chains: tuple[ChainParts, ...]
    listening: ListeningFacet


@derived
def service_chains(db: Mesh, ref: ServiceRef, key: ServingKey) -> ServiceChains | None:
    """Return the chains of a service, or None if the service does not exist."""
    row = service(db, ref)
    if row is None:
        return None
    listening = listening_for(db, key, service_target(row))
    ports = tuple(vip_ports(row, db.settings.ambient.wildcard_tls))
    addresses = virtual_addresses(row, key.families, single=False)
    chains = (
        _chain(db, row, port, protocol, key, limited, addresses)
        for (port, protocols), limited in limit_copies(db, listening, ports, lambda port: len(port[1]))
        for protocol in protocols
    )
    served = (ServedPort(port.number, protocols, port.protocol.is_tls) for port, protocols in ports)
    return ServiceChains(ref.hostname, tuple(sorted(set(addresses))), tuple(served), tuple(chains), listening)


def _chain(
    db: Mesh,
    service: Service,
    port: Port,
    protocol: str,
    key: ServingKey,
    listening: ListeningFacet,
    addresses: tuple[str, ...],
) -> ChainParts:
    name = VipKey(service.ref, port.number, protocol).name
    filters: _Filters = []
    if uses_double_hbone(db.settings.ambient) and addresses:
        filters.append(build_destination(joined(addresses[0], port.number)))
    if protocol == TCP:
        return build_chain(None, [*filters, *_tcp_filters(db, service, port, key, listening)], name=name)
    kind = ManagerKey(
        grpc_web=port.protocol is Protocol.GRPC_WEB,
        http2=port.protocol.is_http2,
        dynamic_host=service.hostname if is_dynamic(service) else "",
    )
    return build_chain(
        None,
        filters,
        _manager(db, kind, listening, port.number, vip_routes(db, service.ref, port.number, key)),
        name=name,
    )


def _manager(
    db: Mesh, kind: ManagerKey, listening: ListeningFacet, port: int, routes: route_pb2.RouteConfiguration
) -> tuple[bytes, ...]:
    """Return the pieces of a serialized HTTP connection manager without tracing.

    Extensions that are limited to certain ports do not apply, because one waypoint handles all ports of a service.
    """
    return manager_template(db, kind, listening, OTHER_PORTS), inline_route_fields(f"inbound_0.0.0.0_{port};", routes)


def _tcp_filters(db: Mesh, service: Service, port: Port, key: ServingKey, listening: ListeningFacet) -> _Filters:
    cluster, pattern = VipKey(service.ref, port.number, TCP).name, listener_defaults(db).inbound_stat_name
    stat_prefix = build_stat_name(pattern, service, port, target_port=None) if pattern else cluster
    route, options = tcp_route(db, service, port, key, stat_prefix, cluster), listener_options(db, listening)
    resolving: tuple[listener_components_pb2.Filter, ...] = ()
    if is_dynamic(service):
        cache = build_dns_cache(names.dns_cache(service.hostname), options.lookup_family)
        resolving = (build_sni_dynamic_forward_proxy(port.number, cache),)
    return build_tcp_filters(
        route, port.protocol, options.network, port.number, inbound=True, guarded=True, resolving=resolving
    )


@derived
def direct_chains(db: Mesh, key: ServingKey) -> tuple[ChainParts, ...]:
    """Return the chains for workloads that are addressed directly. They forward all traffic that the policies allow."""
    cluster = names.ENCAP_CLUSTER
    network = listener_options(db, key.listening).network
    route = TcpRoute(cluster, ((cluster, 0),), settings=TcpSettings(idle_timeout=key.listening.idle_timeout))
    tcp = build_tcp_filters(route, Protocol.TCP, network, 0, inbound=True, guarded=True)
    routes = build_default_vip_configuration(cluster, 0, ":0/*", ["*"], default_vip_action(db, None, cluster, key))
    manager = _manager(db, ManagerKey(), key.listening, 0, routes)
    return build_chain(None, [CONNECT_AUTHORITY, *tcp], name=DIRECT_TCP), build_chain(
        None, [CONNECT_AUTHORITY], manager, name=DIRECT_HTTP
    )


def chain_names(chains: ServiceChains) -> Iterator[tuple[ServedPort, dict[str, str]]]:
    """Yield each port of a service with a mapping from protocol to chain name."""
    for port in chains.ports:
        protocols = (protocol for protocol in (HTTP, TCP) if protocol in port.protocols)
        yield port, {protocol: names.vip_cluster(port.number, protocol, chains.hostname) for protocol in protocols}


_ANY_CLIENT = L4Client("", frozenset())


def tcp_route(db: Mesh, service: Service, port: Port, key: ServingKey, stat_prefix: str, cluster: str) -> TcpRoute:
    """Return the destinations of connections to a service port. Not memoised.

    They come from a VirtualService. If none applies, the destination is the service's own cluster. The TCP proxy
    settings are those of the first destination.
    """
    owner, destinations = _find_route(db, service.ref, port.number, key.scope.namespace)
    first = destinations[0].destination if destinations else None
    ref = find_destination_ref(db, first.host, owner, key) if first is not None else service.ref
    rule = destination_rule(db, key.scope, ref, key.labels) if ref is not None else None
    subset = first.subset if first is not None and len(destinations) == 1 else ""
    settings = tcp_settings(rule.spec if rule is not None else None, subset, key.listening.idle_timeout)
    if len(destinations) > 1:
        clusters = tuple(
            (_cluster(db, destination, owner, port.number, key), destination.weight)
            for destination in destinations
            if destination.weight > 0
        )
        return TcpRoute(stat_prefix, clusters, weighted=True, settings=settings)
    return TcpRoute(
        stat_prefix,
        ((_cluster(db, destinations[0], owner, port.number, key) if destinations else cluster, 0),),
        settings=settings,
    )


def _find_route(db: Mesh, ref: ServiceRef, port: int, namespace: str) -> tuple[str, tuple[RouteDestination, ...]]:
    """Return the destinations for connections to a service port, with the namespace of their VirtualService. Not
    memoised.

    If no VirtualService applies, both are empty. TLS rules take precedence over TCP rules. A TLS rule with matches only
    applies if a match names the service itself, because a waypoint does not inspect TLS.
    """
    virtual_services = list(waypoint_virtual_services(db, ref, namespace))
    for virtual_service in virtual_services:
        for tls in virtual_service.spec.tls:
            if not tls.match or any(
                m.sni_hosts == (ref.hostname,) and can_match(m, _ANY_CLIENT, port) for m in tls.match
            ):
                return virtual_service.namespace, tls.route
    for virtual_service in virtual_services:
        for tcp in virtual_service.spec.tcp:
            if not tcp.match or any(can_match(m, _ANY_CLIENT, port) for m in tcp.match):
                return virtual_service.namespace, tcp.route
    return "", ()


def _cluster(db: Mesh, route: RouteDestination, owner: str, port: int, key: ServingKey) -> str:
    service = (
        find_waypoint_destination(db, route.destination.host, owner, key) if route.destination is not None else None
    )
    return destination_cluster(route.destination, service, port, waypoint=True)
