"""Assembles the listener of a gateway from serialized filter chains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2

from pilot.envoy.listener.filter_chain import ChainMatch, build_chain
from pilot.envoy.listener.gateway.gateway_chain_plan import GatewayListenerKey
from pilot.envoy.listener.listener_filters import TLS_INSPECTOR
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import pack
from pilot.lib.hosts import is_server_name

PROXY_PROTOCOL = listener_components_pb2.ListenerFilter(
    name="envoy.filters.listener.proxy_protocol", typed_config=pack(proxy_protocol_pb2.ProxyProtocol())
)


class GatewayChain(NamedTuple):
    """A serialized filter chain. `inspects_tls` is set if its match depends on the TLS handshake."""

    parts: ChainParts
    inspects_tls: bool


class GatewayOptions(NamedTuple):
    """The settings of a gateway's listener. `additional_addresses` are wildcard addresses of other IP families."""

    additional_addresses: tuple[str, ...] = ()
    proxy_protocol: bool = False
    exact_balance: bool = False
    max_accepts: int = 1
    buffer_bytes: int | None = None
    access_logs: tuple[accesslog_pb2.AccessLog, ...] = ()


def build_gateway_listener(
    listener: GatewayListenerKey, name: str, chains: Sequence[GatewayChain], options: GatewayOptions
) -> Resource:
    """Return a listener, which must have at least one chain.

    Envoy's default timeout of 15 s for listener filters applies, so that clients that never send anything are
    disconnected.
    """
    head = ListenerHead(
        name=name,
        binds=(listener.bind, *options.additional_addresses),
        port=listener.number,
        max_accepts=options.max_accepts,
        exact_balance=options.exact_balance,
        filters=() if listener.quic else _inspection(options.proxy_protocol, any(c.inspects_tls for c in chains)),
        access_logs=options.access_logs,
        buffer_bytes=options.buffer_bytes,
        quic=listener.quic,
    )
    serialized = build_listener_head(head).SerializeToString(deterministic=True)
    return assemble(ListenerParts(name, serialized, tuple(c.parts for c in chains)), b"")


def _inspection(proxy_protocol: bool, tls: bool) -> tuple[listener_components_pb2.ListenerFilter, ...]:
    """Return the listener filters. The PROXY protocol comes first, because its header precedes the TLS handshake."""
    return (*((PROXY_PROTOCOL,) if proxy_protocol else ()), *((TLS_INSPECTOR,) if tls else ()))


def build_gateway_chain(
    server_names: Iterable[str],
    filters: Iterable[listener_components_pb2.Filter] = (),
    manager: tuple[bytes, ...] = (),
    *,
    socket: base_pb2.TransportSocket | None = None,
    timeout: int = 0,
    alpn: tuple[str, ...] = (),
) -> GatewayChain | None:
    """Return a filter chain, or None if none of its server names is valid for SNI.

    `server_names` are matched against the SNI, and `*` matches every name. `socket` is the transport socket for the TLS
    that the chain terminates. `timeout` is the handshake timeout in nanoseconds. If `alpn` is set, the client must
    offer one of these protocols.
    """
    distinct = {name.lower(): name for name in sorted(server_names, reverse=True)}.values()
    valid = tuple(sorted(n for n in distinct if is_server_name(n)))
    if distinct and not valid:
        return None
    match = ChainMatch(server_names=valid if "*" not in valid else (), alpns=alpn)
    parts = build_chain(match if any(match) else None, filters, manager, socket=socket, handshake_timeout=timeout)
    return GatewayChain(parts, bool(valid) or socket is not None)
