"""Puts the listener of a gateway together from filter chains that are serialized already."""

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
from pilot.envoy.listener.listener_head import Frame, build_frame
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import pack
from pilot.lib.hosts import is_server_name

PROXY_PROTOCOL = listener_components_pb2.ListenerFilter(
    name="envoy.filters.listener.proxy_protocol", typed_config=pack(proxy_protocol_pb2.ProxyProtocol())
)


class GatewayChain(NamedTuple):
    """Holds a serialized filter chain; `inspects`: it is chosen by the TLS handshake."""

    parts: ChainParts
    inspects: bool


class GatewayOptions(NamedTuple):
    """Says what a gateway's listener is made of beside its chains. `others`: further addresses; `accepts`: as in `Frame`."""

    others: tuple[str, ...] = ()
    proxy_protocol: bool = False
    exact_balance: bool = False
    accepts: int = 1
    buffer_bytes: int | None = None
    access_logs: tuple[accesslog_pb2.AccessLog, ...] = ()


def build_gateway_listener(
    listener: GatewayListenerKey, name: str, chains: Sequence[GatewayChain], options: GatewayOptions
) -> Resource:
    """Returns the listener of a listener, of at least one chain.

    No timeout of the listener filters is set: Envoy's own, 15 s, frees what clients hold that never speak.
    """
    frame = Frame(
        name=name,
        binds=(listener.bind, *options.others),
        port=listener.number,
        accepts=options.accepts,
        exact_balance=options.exact_balance,
        filters=() if listener.quic else _inspection(options.proxy_protocol, any(c.inspects for c in chains)),
        access_logs=options.access_logs,
        buffer_bytes=options.buffer_bytes,
        quic=listener.quic,
    )
    head = build_frame(frame).SerializeToString(deterministic=True)
    return assemble(ListenerParts(name, head, tuple(c.parts for c in chains)), b"")


def _inspection(proxy_protocol: bool, tls: bool) -> tuple[listener_components_pb2.ListenerFilter, ...]:
    """Returns what is read before a chain is chosen; the PROXY header stands before the TLS handshake."""
    return (*((PROXY_PROTOCOL,) if proxy_protocol else ()), *((TLS_INSPECTOR,) if tls else ()))


def build_gateway_chain(
    server_names: Iterable[str],
    filters: Iterable[listener_components_pb2.Filter] = (),
    manager: bytes = b"",
    *,
    socket: base_pb2.TransportSocket | None = None,
    timeout: int = 0,
    alpn: tuple[str, ...] = (),
) -> GatewayChain | None:
    """Returns one filter chain; None where there are names but none that Envoy can tell TLS by.

    `server_names`: those of the TLS handshake, of which `*` is all. `socket`: TLS that ends here. `timeout`: nanoseconds for the
    handshake. `alpn`: protocols of the handshake of which one must be asked for.
    """
    asked = {name.lower(): name for name in sorted(server_names, reverse=True)}.values()
    named = tuple(sorted(n for n in asked if is_server_name(n)))
    if asked and not named:
        return None
    match = ChainMatch(server_names=named if "*" not in named else (), alpns=alpn)
    parts = build_chain(match if any(match) else None, filters, manager, socket=socket, handshake_timeout=timeout)
    return GatewayChain(parts, bool(named) or socket is not None)
