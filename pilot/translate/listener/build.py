"""Outbound listeners and filter chains as messages."""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from google.protobuf import struct_pb2

from pilot.lib.duration import Duration
from pilot.model.config.object import ObjectKey
from pilot.model.service import Protocol
from pilot.translate import names
from pilot.translate.access_log import AccessLogs, build_tcp_access_logs
from pilot.translate.durations import build_duration
from pilot.translate.http_filter.dynamic_forward_proxy import build_dns_cache
from pilot.translate.listener.address import build_additional, build_address, build_cidr, listener_name
from pilot.translate.listener.chain_spec import ChainSpec, ListenerSpec
from pilot.translate.listener.http import HttpClass, over_rds
from pilot.translate.listener.listener_filter import HTTP_INSPECTOR, TLS_INSPECTOR
from pilot.translate.listener.parts import ChainParts, ListenerParts, split_chain
from pilot.translate.network_filter.mongo_proxy import build_mongo_proxy
from pilot.translate.network_filter.mysql_proxy import build_mysql_proxy
from pilot.translate.network_filter.redis_proxy import build_redis_proxy
from pilot.translate.network_filter.sni_dynamic_forward_proxy import build_sni_dynamic_forward_proxy
from pilot.translate.network_filter.tcp_proxy import TcpRoute, build_tcp_proxy, to_cluster

Chain = listener_components_pb2.FilterChain
UNMATCHED_CHAIN = "PassthroughFilterChain"
EXACT_BALANCE = listener_pb2.Listener.ConnectionBalanceConfig(exact_balance=listener_pb2.Listener.ConnectionBalanceConfig.ExactBalance())


class SocketOptions(NamedTuple):
    """What listeners are made by beside what they are for. `accepts`: connections taken at once, 0 for all."""

    access_logs: AccessLogs = AccessLogs()
    detection_timeout: Duration = Duration(0)
    handshake_timeout: Duration = Duration(0)
    accepts: int = 1
    exact_balance: bool = False
    idle_timeout: Duration | None = None
    mongo: bool = True
    redis: bool = False
    mysql: bool = False
    lookup_family: cluster_pb2.Cluster.DnsLookupFamily = cluster_pb2.Cluster.V4_ONLY


def build_outbound_listener(spec: ListenerSpec, options: SocketOptions, templates: Mapping[HttpClass, bytes]) -> ListenerParts:
    """The listener of a spec; `templates`: the managers of the classes that its chains have."""
    name = listener_name(spec.binds[0], spec.port)
    listener = listener_pb2.Listener(
        name=name,
        address=build_address(spec.binds[0], spec.port),
        additional_addresses=build_additional(spec.binds[1:], spec.port),
        traffic_direction=base_pb2.OUTBOUND,
        continue_on_listener_filters_timeout=True,
    )
    if options.exact_balance:
        listener.connection_balance_config.CopyFrom(EXACT_BALANCE)
    if not spec.to_port:
        listener.bind_to_port.value = False
    elif options.accepts:
        listener.max_connections_to_accept_per_socket_event.value = options.accepts
    _add_inspection(listener, spec, options)
    chains: list[ChainParts] = []
    default: ChainParts | None = None
    for chain in spec.chains:
        parts = _build_chain(chain, name, spec.port, options, templates)
        if chain.matches_all:
            default = parts
        else:
            chains.append(parts)
    if default is None:
        default = split_chain(build_unmatched_chain(spec.unmatched, options))
    elif not chains:
        chains, default = [default], None
    return ListenerParts(name, listener.SerializeToString(deterministic=True), tuple(chains), default)


def _add_inspection(listener: listener_pb2.Listener, spec: ListenerSpec, options: SocketOptions) -> None:
    """Inspection of HTTP ends after a time only where the mesh says so: a server that speaks first would not be waited for."""
    if any(c.sni or (c.dynamic_host and c.tcp is not None) for c in spec.chains):
        listener.listener_filters.add().CopyFrom(TLS_INSPECTOR)
    if any(c.alpns for c in spec.chains):
        listener.listener_filters.add().CopyFrom(HTTP_INSPECTOR)
        listener.listener_filters_timeout.CopyFrom(build_duration(options.detection_timeout))
    else:
        listener.listener_filters_timeout.SetInParent()


def _build_chain(chain: ChainSpec, name: str, port: int, options: SocketOptions, templates: Mapping[HttpClass, bytes]) -> ChainParts:
    built = Chain()
    if not chain.matches_all:
        _set_match(built.filter_chain_match, chain)
    if options.handshake_timeout:
        built.transport_socket_connect_timeout.CopyFrom(build_duration(options.handshake_timeout))
    if chain.source is not None:
        built.metadata.CopyFrom(build_source("virtual-service", chain.source))
    if chain.http is not None:
        return split_chain(built, templates[chain.http.kind] + over_rds(f"outbound_{name};", chain.http.routes))
    assert chain.tcp is not None
    if chain.dynamic_host:
        cache = build_dns_cache(names.dns_cache(chain.dynamic_host), options.lookup_family)
        built.filters.append(build_sni_dynamic_forward_proxy(port, cache))
    built.filters.extend(build_tcp_filters(chain.protocol, chain.tcp, options))
    return split_chain(built)


def _set_match(match: listener_components_pb2.FilterChainMatch, chain: ChainSpec) -> None:
    match.application_protocols.extend(chain.alpns)
    match.transport_protocol = chain.transport
    if "*" not in chain.sni:
        match.server_names.extend(sorted(chain.sni))
    cidrs = (build_cidr(text) for text in sorted(chain.cidrs))
    match.prefix_ranges.extend(c for c in cidrs if c is not None and c.address_prefix != "0.0.0.0")


def build_tcp_filters(protocol: Protocol, route: TcpRoute, options: SocketOptions) -> list[listener_components_pb2.Filter]:
    """What ends a chain of TCP, behind a filter that knows the protocol."""
    if protocol is Protocol.REDIS and options.redis:
        return [build_redis_proxy(route.stat_prefix, route.clusters[0][0])]
    proxy = build_tcp_proxy(route, build_tcp_access_logs(options.access_logs))
    if protocol is Protocol.MONGO and options.mongo:
        return [build_mongo_proxy(route.stat_prefix), proxy]
    if protocol is Protocol.MYSQL and options.mysql:
        return [build_mysql_proxy(route.stat_prefix), proxy]
    return [proxy]


def build_unmatched_filters(cluster: str, options: SocketOptions) -> list[listener_components_pb2.Filter]:
    """What takes connections to unknown destinations."""
    route = to_cluster(cluster)
    if options.idle_timeout is not None:
        route = route._replace(settings=route.settings._replace(idle_timeout=options.idle_timeout))
    return [build_tcp_proxy(route, build_tcp_access_logs(options.access_logs))]


def build_unmatched_chain(cluster: str, options: SocketOptions) -> listener_components_pb2.FilterChain:
    """What a listener does with connections that none of its chains is for."""
    chain = Chain(name=UNMATCHED_CHAIN, filters=build_unmatched_filters(cluster, options))
    chain.filter_chain_match.SetInParent()
    return chain


def build_source(kind: str, key: ObjectKey) -> base_pb2.Metadata:
    """Metadata that name the object which something is from."""
    fields = struct_pb2.Struct()
    fields.fields["config"].string_value = names.config_path(kind, key.namespace, key.name)
    return base_pb2.Metadata(filter_metadata={"istio": fields})
