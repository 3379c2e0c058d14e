"""Transport sockets for TLS, QUIC, the PROXY protocol and plaintext.

The prebuilt sockets are shared and must be copied, not modified.
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, proxy_protocol_pb2
from envoy.extensions.transport_sockets.proxy_protocol.v3 import upstream_proxy_protocol_pb2
from envoy.extensions.transport_sockets.quic.v3 import quic_transport_pb2
from envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2

from pilot.config.networking.destination_rule import ProxyProtocol
from pilot.envoy.well_known_types import pack

TLS_NAME = "envoy.transport_sockets.tls"
RAW_BUFFER_NAME = "envoy.transport_sockets.raw_buffer"
QUIC_NAME = "envoy.transport_sockets.quic"


def build_upstream_tls(context: tls_pb2.UpstreamTlsContext) -> base_pb2.TransportSocket:
    """Return the transport socket of a cluster that originates TLS."""
    return base_pb2.TransportSocket(name=TLS_NAME, typed_config=pack(context))


def build_downstream_tls(context: tls_pb2.DownstreamTlsContext) -> base_pb2.TransportSocket:
    """Return the transport socket of a filter chain that terminates TLS."""
    return base_pb2.TransportSocket(name=TLS_NAME, typed_config=pack(context))


def build_quic_downstream(context: tls_pb2.DownstreamTlsContext) -> base_pb2.TransportSocket:
    """Return the transport socket of a filter chain that terminates QUIC, in an HTTP/3 listener."""
    return base_pb2.TransportSocket(
        name=QUIC_NAME, typed_config=pack(quic_transport_pb2.QuicDownstreamTransport(downstream_tls_context=context))
    )


RAW_BUFFER = base_pb2.TransportSocket(name=RAW_BUFFER_NAME, typed_config=pack(raw_buffer_pb2.RawBuffer()))
PROXY_PROTOCOL_NAME = "envoy.transport_sockets.upstream_proxy_protocol"
PLAINTEXT = base_pb2.TransportSocket(name="raw_buffer", typed_config=pack(raw_buffer_pb2.RawBuffer()))
_VERSIONS = {"V1": proxy_protocol_pb2.ProxyProtocolConfig.V1, "V2": proxy_protocol_pb2.ProxyProtocolConfig.V2}


def build_proxy_protocol(inner: base_pb2.TransportSocket, settings: ProxyProtocol) -> base_pb2.TransportSocket:
    """Return a transport socket that first sends the client's address in a PROXY protocol header."""
    config = proxy_protocol_pb2.ProxyProtocolConfig(version=_VERSIONS[settings.version])
    transport = upstream_proxy_protocol_pb2.ProxyProtocolUpstreamTransport(config=config, transport_socket=inner)
    return base_pb2.TransportSocket(name=PROXY_PROTOCOL_NAME, typed_config=pack(transport))
