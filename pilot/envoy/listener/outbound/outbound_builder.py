"""Builds the outbound listeners of sidecars."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from envoy.config.listener.v3 import listener_components_pb2

from pilot.config.protocol import Protocol
from pilot.envoy import names
from pilot.envoy.http_filter.dynamic_forward_proxy import build_dns_cache
from pilot.envoy.listener.filter_chain import ANY, UNMATCHED_CHAIN, ChainMatch, build_chain, build_source
from pilot.envoy.listener.listener_address import listener_name
from pilot.envoy.listener.listener_filters import HTTP_INSPECTOR, TLS_INSPECTOR
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_options import ListenerOptions
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts
from pilot.envoy.listener.manager_template import ManagerKey, rds_fields
from pilot.envoy.listener.outbound.outbound_draft import OutboundChainKey, OutboundListenerKey
from pilot.envoy.network_filter.simple_network_filters import build_sni_dynamic_forward_proxy
from pilot.envoy.network_filter.tcp_filters import build_first_filters, build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpSettings, single_cluster_route
from pilot.lib.duration import Duration


def build_outbound_listener(
    key: OutboundListenerKey, options: ListenerOptions, templates: Mapping[ManagerKey, bytes]
) -> Generator[None, None, ListenerParts]:
    """Return an outbound listener, after yielding between its filter chains.

    `templates` maps classes of HTTP connection managers to their templates.
    """
    name = listener_name(key.binds[0], key.port)
    filters, timeout = _inspection(key, options)
    head = ListenerHead(
        name=name,
        binds=key.binds,
        port=key.port,
        binds_port=key.binds_port,
        max_accepts=options.max_accepts,
        exact_balance=options.exact_balance,
        filters=filters,
        inspection_timeout=timeout,
    )
    chains: list[ChainParts] = []
    default: ChainParts | None = None
    for chain in key.chains:
        parts = _build_chain(chain, name, key.port, options, templates)
        if chain.matches_all:
            default = parts
        else:
            chains.append(parts)
        yield
    if default is None:
        default = build_chain(ANY, build_unmatched_filters(key.unmatched, options), name=UNMATCHED_CHAIN)
    elif not chains:
        chains, default = [default], None
    return ListenerParts(name, build_listener_head(head).SerializeToString(deterministic=True), tuple(chains), default)


def _inspection(
    key: OutboundListenerKey, options: ListenerOptions
) -> tuple[tuple[listener_components_pb2.ListenerFilter, ...], Duration]:
    """Return the inspectors of a listener, and their timeout.

    HTTP inspection only times out if the mesh config sets a timeout. Without a timeout, a connection hangs if its
    server sends first.
    """
    filters = []
    if any(c.sni or (c.dynamic_host and c.tcp is not None) for c in key.chains):
        filters.append(TLS_INSPECTOR)
    if not any(c.alpns for c in key.chains):
        return tuple(filters), Duration(0)
    return (*filters, HTTP_INSPECTOR), options.detection_timeout


def _build_chain(
    chain: OutboundChainKey, name: str, port: int, options: ListenerOptions, templates: Mapping[ManagerKey, bytes]
) -> ChainParts:
    match = None if chain.matches_all else _match(chain)
    source = build_source("virtual-service", chain.source) if chain.source is not None else None
    manager: tuple[bytes, ...] = ()
    if chain.http is not None:
        manager = (templates[chain.http.kind], rds_fields(f"outbound_{name};", chain.http.routes))
        filters = build_first_filters(options.network, port)
    else:
        assert chain.tcp is not None
        filters = build_tcp_filters(
            chain.tcp, chain.protocol, options.network, port, resolving=_resolving(chain, port, options)
        )
    return build_chain(match, filters, manager, handshake_timeout=options.handshake_timeout, source=source)


def _resolving(
    chain: OutboundChainKey, port: int, options: ListenerOptions
) -> tuple[listener_components_pb2.Filter, ...]:
    if not chain.dynamic_host:
        return ()
    cache = build_dns_cache(names.dns_cache(chain.dynamic_host), options.lookup_family)
    return (build_sni_dynamic_forward_proxy(port, cache),)


def _match(chain: OutboundChainKey) -> ChainMatch:
    return ChainMatch(
        server_names=tuple(sorted(chain.sni)) if "*" not in chain.sni else (),
        cidrs=tuple(c for c in sorted(chain.cidrs) if c.partition("/")[0] != "0.0.0.0"),
        alpns=chain.alpns,
        transport=chain.transport,
    )


def build_unmatched_filters(cluster: str, options: ListenerOptions) -> list[listener_components_pb2.Filter]:
    """Return the filters for connections that match no other chain."""
    route = single_cluster_route(cluster, TcpSettings(idle_timeout=options.idle_timeout))
    return build_tcp_filters(route, Protocol.TCP, options.network)
