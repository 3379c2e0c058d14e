"""Builds a listener without its filter chains, for all listeners of all kinds of proxies."""

from __future__ import annotations

from typing import NamedTuple

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, udp_socket_config_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2, quic_config_pb2, udp_listener_config_pb2

from pilot.envoy.listener.listener_address import build_additional, build_address
from pilot.envoy.well_known_types import build_duration
from pilot.lib.duration import Duration

_Balance = listener_pb2.Listener.ConnectionBalanceConfig
_EXACT = _Balance(exact_balance=_Balance.ExactBalance())
_DIRECTIONS = {True: base_pb2.INBOUND, False: base_pb2.OUTBOUND, None: base_pb2.UNSPECIFIED}
_QUIC = udp_listener_config_pb2.UdpListenerConfig(
    quic_options=quic_config_pb2.QuicProtocolOptions(), downstream_socket_config=udp_socket_config_pb2.UdpSocketConfig()
)


class Frame(NamedTuple):
    """Describes a listener without its filter chains.

    `binds`: its addresses, the first is the one that names it. `accepts`: how many connections a worker takes at once, 0 for all.
    `inspection_timeout`: how long `filters` may look at a connection before it goes on without them (0 for ever); None for Envoy's own
    15 s, after which the connection is closed. `takes_port`: it is bound to its port, and not only handed captured connections.
    `hands_over`: it passes connections to the listener of their original destination. `access_logs`: of connections without a chain.
    `internal`: only the proxy itself connects to it, so that it has no address. `inbound` None: it is of neither side.
    """

    name: str
    binds: tuple[str, ...]
    port: int
    inbound: bool | None = False
    takes_port: bool = True
    accepts: int = 1
    exact_balance: bool = False
    filters: tuple[listener_components_pb2.ListenerFilter, ...] = ()
    inspection_timeout: Duration | None = None
    access_logs: tuple[accesslog_pb2.AccessLog, ...] = ()
    transparent: bool = False
    hands_over: bool = False
    buffer_bytes: int | None = None
    quic: bool = False
    internal: bool = False


def build_frame(frame: Frame) -> listener_pb2.Listener:
    """Returns the listener."""
    listener = listener_pb2.Listener(
        name=frame.name,
        address=build_address(frame.binds[0], frame.port) if not frame.internal else None,
        additional_addresses=build_additional(frame.binds[1:], frame.port),
        traffic_direction=_DIRECTIONS[frame.inbound],
        listener_filters=frame.filters,
        access_log=frame.access_logs,
    )
    if frame.inspection_timeout is not None:
        listener.continue_on_listener_filters_timeout = True
    if frame.inspection_timeout is not None and not frame.internal:
        listener.listener_filters_timeout.CopyFrom(build_duration(frame.inspection_timeout))
    if frame.transparent:
        listener.transparent.value = True
    if frame.hands_over:
        listener.use_original_dst.value = True
    if frame.buffer_bytes is not None:
        listener.per_connection_buffer_limit_bytes.value = frame.buffer_bytes
    _set_socket(listener, frame)
    return listener


def _set_socket(listener: listener_pb2.Listener, frame: Frame) -> None:
    """Sets how connections are taken. UDP has no connections to balance."""
    if frame.internal:
        listener.internal_listener.SetInParent()
        return
    if not frame.takes_port:
        listener.bind_to_port.value = False
    elif frame.accepts:
        listener.max_connections_to_accept_per_socket_event.value = frame.accepts
    if frame.quic:
        listener.udp_listener_config.CopyFrom(_QUIC)
        for address in (listener.address, *(a.address for a in listener.additional_addresses)):
            address.socket_address.protocol = address_pb2.SocketAddress.UDP
    elif frame.exact_balance:
        listener.connection_balance_config.CopyFrom(_EXACT)
