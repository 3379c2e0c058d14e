"""Builds TLS of listeners and clusters, as Envoy's transport sockets. Certificates always come by SDS, never inline."""

from pilot.envoy.transport_socket.downstream import ServerCertificates, build_inbound_context, build_server_context
from pilot.envoy.transport_socket.sockets import RAW_BUFFER, build_downstream, build_quic, build_upstream
from pilot.envoy.transport_socket.upstream import UpstreamTls, build_mesh_context, build_upstream_context

__all__ = [
    "RAW_BUFFER",
    "ServerCertificates",
    "UpstreamTls",
    "build_downstream",
    "build_inbound_context",
    "build_mesh_context",
    "build_quic",
    "build_server_context",
    "build_upstream",
    "build_upstream_context",
]
