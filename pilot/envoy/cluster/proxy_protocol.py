"""Puts HAProxy's PROXY protocol in front of whatever a cluster sends.

https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy-ProxyProtocol
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, proxy_protocol_pb2
from envoy.extensions.transport_sockets.proxy_protocol.v3 import upstream_proxy_protocol_pb2
from envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2

from pilot.config.networking.destination_rule import ProxyProtocol
from pilot.envoy.cluster.draft import ClusterDraft
from pilot.envoy.well_known_types import pack

NAME = "envoy.transport_sockets.upstream_proxy_protocol"
_PLAIN = base_pb2.TransportSocket(name="raw_buffer", typed_config=pack(raw_buffer_pb2.RawBuffer()))
_VERSIONS = {"V1": proxy_protocol_pb2.ProxyProtocolConfig.V1, "V2": proxy_protocol_pb2.ProxyProtocolConfig.V2}


def apply_proxy_protocol(draft: ClusterDraft, said: ProxyProtocol) -> None:
    """Wraps every transport socket of a cluster."""
    cluster = draft.cluster
    if cluster.HasField("transport_socket") or not cluster.transport_socket_matches:
        inner = cluster.transport_socket if cluster.HasField("transport_socket") else _PLAIN
        cluster.transport_socket.CopyFrom(wrap(inner, said))
    for match in cluster.transport_socket_matches:
        match.transport_socket.CopyFrom(wrap(match.transport_socket, said))


def wrap(inner: base_pb2.TransportSocket, said: ProxyProtocol) -> base_pb2.TransportSocket:
    """Returns a transport socket that announces the client's address first."""
    config = proxy_protocol_pb2.ProxyProtocolConfig(version=_VERSIONS[said.version])
    transport = upstream_proxy_protocol_pb2.ProxyProtocolUpstreamTransport(config=config, transport_socket=inner)
    return base_pb2.TransportSocket(name=NAME, typed_config=pack(transport))
