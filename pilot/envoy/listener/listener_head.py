"""Builds all kinds of listeners, without their filter chains."""

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


class ListenerHead(NamedTuple):
    """A listener without its filter chains.

    `binds` are its addresses. `inbound` is None if it belongs to neither side. `binds_port` is False if it only
    receives connections from the capture listener. `max_accepts` limits the connections that a worker accepts at once,
    and 0 means no limit.

    `inspection_timeout` limits how long `filters` may inspect a connection before it proceeds without them, and 0 means
    no limit. None keeps Envoy's default of 15 s, after which the connection is closed.

    `access_logs` are for connections that match no chain. `uses_original_dst` passes connections to the listener of
    their original destination. An `internal` listener has no address, because only the proxy itself connects to it.
    """

    name: str
    binds: tuple[str, ...]
    port: int
    inbound: bool | None = False
    binds_port: bool = True
    max_accepts: int = 1
    exact_balance: bool = False
    filters: tuple[listener_components_pb2.ListenerFilter, ...] = ()
    inspection_timeout: Duration | None = None
    access_logs: tuple[accesslog_pb2.AccessLog, ...] = ()
    transparent: bool = False
    uses_original_dst: bool = False
    buffer_bytes: int | None = None
    quic: bool = False
    internal: bool = False


def build_listener_head(head: ListenerHead) -> listener_pb2.Listener:
    """Return a listener without its filter chains."""
    listener = listener_pb2.Listener(
        name=head.name,
        address=build_address(head.binds[0], head.port) if not head.internal else None,
        additional_addresses=build_additional(head.binds[1:], head.port),
        traffic_direction=_DIRECTIONS[head.inbound],
        listener_filters=head.filters,
        access_log=head.access_logs,
    )
    if head.inspection_timeout is not None:
        listener.continue_on_listener_filters_timeout = True
    if head.inspection_timeout is not None and not head.internal:
        listener.listener_filters_timeout.CopyFrom(build_duration(head.inspection_timeout))
    if head.transparent:
        listener.transparent.value = True
    if head.uses_original_dst:
        listener.use_original_dst.value = True
    if head.buffer_bytes is not None:
        listener.per_connection_buffer_limit_bytes.value = head.buffer_bytes
    _set_socket(listener, head)
    return listener


def _set_socket(listener: listener_pb2.Listener, head: ListenerHead) -> None:
    """Set how a listener accepts connections. UDP has no connections to balance."""
    if head.internal:
        listener.internal_listener.SetInParent()
        return
    if not head.binds_port:
        listener.bind_to_port.value = False
    elif head.max_accepts:
        listener.max_connections_to_accept_per_socket_event.value = head.max_accepts
    if head.quic:
        listener.udp_listener_config.CopyFrom(_QUIC)
        for address in (listener.address, *(a.address for a in listener.additional_addresses)):
            address.socket_address.protocol = address_pb2.SocketAddress.UDP
    elif head.exact_balance:
        listener.connection_balance_config.CopyFrom(_EXACT)
