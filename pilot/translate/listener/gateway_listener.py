"""The listener of a gateway, put together from filter chains that are serialized already."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, udp_socket_config_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2, quic_config_pb2, udp_listener_config_pb2
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2

from pilot.lib.hosts import is_server_name
from pilot.translate.durations import build_duration
from pilot.translate.listener.address import build_additional, build_address
from pilot.translate.listener.gateway_chains import Slot
from pilot.translate.listener.listener_filter import TLS_INSPECTOR
from pilot.translate.resource import LISTENER, Resource, length_delimited
from pilot.translate.typed import pack

PROXY_PROTOCOL = listener_components_pb2.ListenerFilter(
    name="envoy.filters.listener.proxy_protocol", typed_config=pack(proxy_protocol_pb2.ProxyProtocol())
)
_EXACT = listener_pb2.Listener.ConnectionBalanceConfig(exact_balance=listener_pb2.Listener.ConnectionBalanceConfig.ExactBalance())
_QUIC = udp_listener_config_pb2.UdpListenerConfig(
    quic_options=quic_config_pb2.QuicProtocolOptions(), downstream_socket_config=udp_socket_config_pb2.UdpSocketConfig()
)


class BuiltChain(NamedTuple):
    """A serialized filter chain; `inspects`: it is chosen by the TLS handshake."""

    chain: bytes
    inspects: bool


class ListenerOptions(NamedTuple):
    """What a listener is made of beside its chains. `others`: further addresses, `accepts`: connections taken at once, 0 for all."""

    others: tuple[str, ...] = ()
    proxy_protocol: bool = False
    exact_balance: bool = False
    accepts: int = 1
    buffer_bytes: int | None = None
    access_logs: tuple[accesslog_pb2.AccessLog, ...] = ()


def build_listener(slot: Slot, name: str, chains: Sequence[BuiltChain], options: ListenerOptions) -> Resource:
    """The listener of a slot, of at least one chain.

    No timeout of the listener filters is set: Envoy's own, 15 s, frees what clients hold that never speak.
    """
    listener = listener_pb2.Listener(
        name=name,
        address=build_address(slot.bind, slot.number),
        additional_addresses=build_additional(options.others, slot.number),
        traffic_direction=base_pb2.OUTBOUND,
        access_log=options.access_logs,
    )
    if options.accepts:
        listener.max_connections_to_accept_per_socket_event.value = options.accepts
    if options.buffer_bytes is not None:
        listener.per_connection_buffer_limit_bytes.value = options.buffer_bytes
    if slot.quic:
        listener.udp_listener_config.CopyFrom(_QUIC)
        for address in (listener.address, *(a.address for a in listener.additional_addresses)):
            address.socket_address.protocol = address_pb2.SocketAddress.UDP
    else:
        _add_inspection(listener, options.proxy_protocol, any(c.inspects for c in chains))
        if options.exact_balance:
            listener.connection_balance_config.CopyFrom(_EXACT)
    body = [listener.SerializeToString(deterministic=True)]
    body += [length_delimited(listener_pb2.Listener.FILTER_CHAINS_FIELD_NUMBER, c.chain) for c in chains]
    return Resource(name, LISTENER, b"".join(body))


def _add_inspection(listener: listener_pb2.Listener, proxy_protocol: bool, tls: bool) -> None:
    """What is read before a chain is chosen; the PROXY header stands before the TLS handshake."""
    if proxy_protocol:
        listener.listener_filters.add().CopyFrom(PROXY_PROTOCOL)
    if tls:
        listener.listener_filters.add().CopyFrom(TLS_INSPECTOR)


def build_chain(
    server_names: Iterable[str],
    filters: Iterable[listener_components_pb2.Filter],
    socket: base_pb2.TransportSocket | None = None,
    timeout: int = 0,
    alpn: Sequence[str] = (),
) -> BuiltChain | None:
    """One filter chain. `server_names`: those of the TLS handshake, of which `*` is all; `timeout`: nanoseconds for the handshake.

    None where there are names but none that Envoy can tell TLS by.

    `socket`: TLS that ends here; `alpn`: protocols of the handshake of which one must be asked for.
    """
    asked = {name.lower(): name for name in sorted(server_names, reverse=True)}.values()
    named = sorted(n for n in asked if is_server_name(n))
    if asked and not named:
        return None
    chain = listener_components_pb2.FilterChain(filters=filters, transport_socket=socket)
    if alpn:
        chain.filter_chain_match.application_protocols.extend(alpn)
    if named and "*" not in named:
        chain.filter_chain_match.server_names.extend(named)
    if timeout:
        chain.transport_socket_connect_timeout.CopyFrom(build_duration(timeout))
    return BuiltChain(chain.SerializeToString(deterministic=True), bool(named) or socket is not None)
