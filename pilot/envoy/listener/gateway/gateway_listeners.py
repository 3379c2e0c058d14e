"""The listeners of gateways: one for each port and bind address. Their filter chains are derived separately."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envoy.config.core.v3 import base_pb2
from msgspec.structs import replace

from pilot.config.kinds.gateway_api import TLS_ROUTE
from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol, parse_protocol
from pilot.derive import Gather, derived
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.extension_filters import extension_port
from pilot.envoy.listener.gateway.auto_passthrough_chains import auto_passthrough_chains, build_auto_passthrough_chain
from pilot.envoy.listener.gateway.gateway_builder import (
    GatewayChain,
    GatewayOptions,
    build_gateway_chain,
    build_gateway_listener,
)
from pilot.envoy.listener.gateway.gateway_chain_plan import (
    AutoPassthroughChain,
    AutoPassthroughServer,
    BoundL4Rules,
    ChainPlan,
    DuplicateMatch,
    GatewayChainKey,
    GatewayListenerKey,
    HttpsChain,
    PlainChain,
    PlannedChain,
    SniChain,
    TcpChain,
    plan_chains,
    plan_listeners,
)
from pilot.envoy.listener.gateway.gateway_managers import manager, tcp_route
from pilot.envoy.listener.listener_address import listener_name, wildcards
from pilot.envoy.listener.listener_options import listener_options
from pilot.envoy.listener.manager_template import ManagerKey, rds_fields
from pilot.envoy.listener.policy_copies import FREE_COPY_BYTES, limit_copies, policy_size
from pilot.envoy.names import outbound_cluster
from pilot.envoy.network_filter.tcp_filters import build_first_filters, build_tcp_filters
from pilot.envoy.resource import Resource
from pilot.envoy.route.gateway.gateway_route_configurations import route_name
from pilot.envoy.transport_socket.downstream_tls import (
    HTTP3_ALPN,
    HTTP_ALPN,
    PEER_ALPN,
    ServerCertificates,
    build_server_context,
)
from pilot.envoy.transport_socket.sds import SdsProvider
from pilot.envoy.transport_socket.transport_sockets import build_downstream_tls, build_quic_downstream
from pilot.mesh.gateways.gateways import gateway_ports, merged_gateway, server
from pilot.mesh.gateways.servers import GatewaySelectionKey, MergedPort, ServerKey, sni_hosts
from pilot.mesh.model.service import Port
from pilot.mesh.proxies.router import GatewayListenersFacet, bound_services
from pilot.mesh.registry.mesh_services import secret_provider
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.traffic.route_limits import chains_per_port
from pilot.mesh.traffic.virtual_services import virtual_service

# -- plans -------------------------------------------------------------------------------------------------------------


@derived
def _planned_listeners(
    db: Mesh, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> dict[GatewayListenerKey, tuple[MergedPort, ...]]:
    wildcard = wildcards(facet.listening.ipv4, facet.listening.ipv6)[0]
    return plan_listeners(merged_gateway(db, selection), wildcard, facet.listening.unprivileged)


@derived
def _listener_keys(
    db: Mesh, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> tuple[GatewayListenerKey, ...]:
    return tuple(_planned_listeners(db, selection, facet))


@derived
def _l4_rules(db: Mesh, key: ObjectKey, _namespace: str, _gateway: ObjectKey) -> BoundL4Rules | None:
    row = virtual_service(db, key)
    if row is None:
        return None
    of_tls_route = row.origin is not None and any(parent.kind == TLS_ROUTE.id for parent in row.origin.parents)
    rules = BoundL4Rules.of(key, row.spec, of_tls_route)
    return rules if rules.tcp or rules.tls else None


_l4_rules_of_gateway: Gather[ObjectKey, [str, ObjectKey], BoundL4Rules] = Gather(
    "layer4_of_gateway", bound_services, _l4_rules
)


@derived
def _planned(
    db: Mesh, listener: GatewayListenerKey, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> ChainPlan:
    ports = _planned_listeners(db, selection, facet).get(listener, ())
    servers = {m.key: s for p in ports for m in p.servers if (s := server(db, m.key)) is not None}
    gateways = dict.fromkeys(key.gateway for key in servers)
    bound = {g: tuple(_l4_rules_of_gateway(db, facet.scope.namespace, g).values()) for g in gateways}
    limits = {g: chains_per_port(len(gateway_ports(db, g))) for g in gateways}
    return plan_chains(ports, listener.quic, servers, bound, limits)


@derived
def _chain_keys(
    db: Mesh, listener: GatewayListenerKey, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> tuple[GatewayChainKey, ...]:
    chains: dict[GatewayChainKey, None] = {}
    for planned in _planned(db, listener, selection, facet).chains:
        if isinstance(planned, AutoPassthroughServer):
            row = server(db, planned.server)
            names = sni_hosts(row) if row is not None else ()
            chains |= dict.fromkeys(auto_passthrough_chains(db, names, facet.scope, facet.labels))
        else:
            chains[planned] = None
    return tuple(chains)


@derived
def duplicate_matches(
    db: Mesh, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> tuple[DuplicateMatch, ...]:
    """Return the matches of TLS rules for which the listeners of a gateway have no chain."""
    return tuple(
        duplicate
        for listener in _listener_keys(db, selection, facet)
        for duplicate in _planned(db, listener, selection, facet).duplicates
    )


@derived
def shadowed_servers(db: Mesh, selection: GatewaySelectionKey, facet: GatewayListenersFacet) -> tuple[ServerKey, ...]:
    """Return the servers for which the listeners of a gateway have no chain."""
    return tuple(
        key
        for listener in _listener_keys(db, selection, facet)
        for key in _planned(db, listener, selection, facet).shadowed
    )


@derived
def denied_chains(
    db: Mesh, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> Mapping[tuple[GatewayListenerKey, PlannedChain], ServerKey]:
    """Return the chains that deny everything, because the gateway's policies are too large for the number of chains.

    The limit applies to the Gateways of each namespace separately. The result maps each chain to its server.
    """
    if policy_size(db, facet.listening) <= FREE_COPY_BYTES:
        return {}
    chains: dict[str, dict[tuple[GatewayListenerKey, PlannedChain], ServerKey]] = {}
    for listener, ports in _planned_listeners(db, selection, facet).items():
        of_routes = {port.route: port.servers[0].key for port in ports}
        for chain in _planned(db, listener, selection, facet).chains:
            key = of_routes[chain.route] if isinstance(chain, PlainChain) else chain.server
            chains.setdefault(key.gateway.namespace, {})[listener, chain] = key
    return {
        chain: keys[chain]
        for keys in chains.values()
        for chain, limited in limit_copies(db, facet.listening, keys, lambda _: 1)
        if limited.denies
    }


# -- chains ------------------------------------------------------------------------------------------------------------


@derived
def filter_chain(
    db: Mesh, chain: GatewayChainKey, listener: GatewayListenerKey, facet: GatewayListenersFacet
) -> GatewayChain | None:
    """Return a filter chain, or None if it cannot be built, for example because it has no destination."""
    if isinstance(chain, PlainChain):
        return _plain_chain(db, chain, listener, facet)
    if isinstance(chain, HttpsChain):
        return _https_chain(db, chain, listener, facet)
    if isinstance(chain, AutoPassthroughChain):
        return build_auto_passthrough_chain(db, chain, facet)
    return _tcp_chain(db, chain, facet)


def _plain_chain(
    db: Mesh, chain: PlainChain, listener: GatewayListenerKey, facet: GatewayListenersFacet
) -> GatewayChain | None:
    kind = ManagerKey(grpc_web=parse_protocol(chain.protocol) is Protocol.GRPC_WEB)
    template = manager(db, facet, kind, extension_port(db, facet.listening, listener.number))
    routes = rds_fields(_stat_prefix(listener), route_name(chain.route))
    filters = build_first_filters(listener_options(db, facet.listening).network, listener.number)
    return build_gateway_chain((), filters, (template, routes), timeout=db.settings.gateways.handshake_timeout)


def _https_chain(
    db: Mesh, chain: HttpsChain, listener: GatewayListenerKey, facet: GatewayListenersFacet
) -> GatewayChain | None:
    row = server(db, chain.server)
    if row is None:
        return None
    template = manager(db, facet, ManagerKey(http3=listener.quic), extension_port(db, facet.listening, listener.number))
    routes = rds_fields(row.name or _stat_prefix(listener), route_name(chain.route))
    socket = _socket(db, chain.server, facet, HTTP3_ALPN if listener.quic else HTTP_ALPN, listener.quic)
    filters = (
        build_first_filters(listener_options(db, facet.listening).network, listener.number) if not listener.quic else []
    )
    return build_gateway_chain(
        sni_hosts(row), filters, (template, routes), socket=socket, timeout=db.settings.gateways.handshake_timeout
    )


def _tcp_chain(db: Mesh, chain: TcpChain | SniChain, facet: GatewayListenersFacet) -> GatewayChain | None:
    row, service = server(db, chain.server), virtual_service(db, chain.virtual_service)
    if row is None or row.port is None or service is None:
        return None
    sni = isinstance(chain, SniChain)
    rules: tuple[Any, ...] = service.spec.tls if isinstance(chain, SniChain) or chain.of_tls else service.spec.tcp
    if chain.rule >= len(rules):
        return None
    port = Port(row.port.name, row.port.number, parse_protocol(row.port.protocol))
    route = tcp_route(db, rules[chain.rule].route, port, f"{service.name}.{service.namespace}", facet)
    if route is None:
        return None
    mesh_tls = not sni and row.tls is not None and row.tls.mode == "ISTIO_MUTUAL"
    filters = build_tcp_filters(
        route, port.protocol, listener_options(db, facet.listening).network, port.number, inbound=mesh_tls, guarded=True
    )
    if isinstance(chain, SniChain):
        return build_gateway_chain(chain.hosts, filters, timeout=db.settings.gateways.handshake_timeout)
    alpn = PEER_ALPN if mesh_tls and not db.settings.telemetry.disable_metadata_exchange_alpn else HTTP_ALPN
    socket = _socket(db, chain.server, facet, alpn) if row.tls is not None else None
    return build_gateway_chain(sni_hosts(row), filters, socket=socket, timeout=db.settings.gateways.handshake_timeout)


def _stat_prefix(listener: GatewayListenerKey) -> str:
    return f"outbound_{gateway_listener_name(listener)};"


def _socket(
    db: Mesh, key: ServerKey, facet: GatewayListenersFacet, alpn: tuple[str, ...], quic: bool = False
) -> base_pb2.TransportSocket | None:
    """Return the transport socket of a server that terminates TLS, or None if the server has no TLS."""
    row = server(db, key)
    if row is None or row.tls is None:
        return None
    certificates = ServerCertificates(facet.tls_files, facet.secret_servers, _sds_provider(db))
    context = build_server_context(
        row.tls, certificates, alpn, quic, _tls_defaults(db), db.settings.tls.compliance_policy
    )
    return build_quic_downstream(context) if quic else build_downstream_tls(context)


@derived
def _tls_defaults(db: Mesh) -> Any:
    return mesh_config(db).tls_defaults


@derived
def _sds_provider(db: Mesh) -> SdsProvider | None:
    port = secret_provider(db)
    return SdsProvider(outbound_cluster(port.port, "", port.hostname), port.hostname) if port is not None else None


# -- listeners ---------------------------------------------------------------------------------------------------------


@derived
def _chain(
    db: Mesh,
    chain: GatewayChainKey,
    listener: GatewayListenerKey,
    selection: GatewaySelectionKey,
    facet: GatewayListenersFacet,
) -> GatewayChain | None:
    if (listener, chain) in denied_chains(db, selection, facet):
        facet = replace(facet, listening=replace(facet.listening, denies=True))
    return filter_chain(db, chain, listener, facet)


_chains: Gather[GatewayChainKey, [GatewayListenerKey, GatewaySelectionKey, GatewayListenersFacet], GatewayChain]
_chains = Gather("gateway_chains", _chain_keys, _chain)


@derived
def _listener(
    db: Mesh, listener: GatewayListenerKey, selection: GatewaySelectionKey, facet: GatewayListenersFacet
) -> Resource | None:
    """Return a listener, or None if it has no chains."""
    chains = tuple(_chains(db, listener, selection, facet).values())
    return (
        build_gateway_listener(listener, gateway_listener_name(listener), chains, _options(db, listener, facet))
        if chains
        else None
    )


def gateway_listener_name(listener: GatewayListenerKey) -> str:
    return ("udp_" if listener.quic else "") + listener_name(listener.bind, listener.number)


@derived
def _options(db: Mesh, listener: GatewayListenerKey, facet: GatewayListenersFacet) -> GatewayOptions:
    listening = facet.listening
    all_addresses = wildcards(listening.ipv4, listening.ipv6)
    return GatewayOptions(
        additional_addresses=all_addresses[1:]
        if db.settings.registry.dual_stack and listener.bind == all_addresses[0]
        else (),
        proxy_protocol=facet.topology.proxy_protocol,
        exact_balance=listening.exact_balance,
        max_accepts=db.settings.listeners.connections_per_event,
        buffer_bytes=listening.connections.listener_per_connection_buffer_limit_bytes,
        access_logs=build_listener_access_logs(access_logs(db, listening)),
    )


gateway_listeners: Gather[GatewayListenerKey, [GatewaySelectionKey, GatewayListenersFacet], Resource]
gateway_listeners = Gather("gateway_listeners", _listener_keys, _listener)
