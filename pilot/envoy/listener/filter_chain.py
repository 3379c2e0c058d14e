"""Builds filter chains for all kinds of listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2
from google.protobuf import struct_pb2

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.envoy import names
from pilot.envoy.listener.listener_parts import ChainParts
from pilot.envoy.network_filter.tcp_filters import NetworkOptions, build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import single_cluster_route
from pilot.envoy.well_known_types import build_cidr, build_duration

UNMATCHED_CHAIN = "PassthroughFilterChain"

RAW_BUFFER = "raw_buffer"
"""The transport protocol of a connection without TLS."""
HTTP_ALPNS = ("http/1.1", "h2c")
MESH_HTTP_ALPNS = ("istio-http/1.0", "istio-http/1.1", "istio-h2")
MESH_TCP_ALPNS = ("istio-peer-exchange", "istio")
MESH_ALPNS = ("istio", "istio-peer-exchange", *MESH_HTTP_ALPNS)


def plaintext_alpns(http10: bool) -> tuple[str, ...]:
    """Return the protocols that the HTTP inspector reports for plaintext HTTP. `http10` adds HTTP/1.0."""
    return ("http/1.0", *HTTP_ALPNS) if http10 else HTTP_ALPNS


class ChainMatch(NamedTuple):
    """The conditions under which a connection uses a chain. An empty condition matches every connection."""

    server_names: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()
    alpns: tuple[str, ...] = ()
    transport: str = ""
    port: int = 0


ANY = ChainMatch()


def build_chain(
    match: ChainMatch | None,
    filters: Iterable[listener_components_pb2.Filter] = (),
    manager: tuple[bytes, ...] = (),
    *,
    name: str = "",
    socket: base_pb2.TransportSocket | None = None,
    handshake_timeout: int = 0,
    source: base_pb2.Metadata | None = None,
) -> ChainParts:
    """Return a filter chain that ends with an HTTP connection manager, or with the last of `filters` if `manager` is
    empty. The manager is serialized and given in pieces.

    `match` is None for a chain without conditions. `socket` is the transport socket for the TLS that the chain
    terminates. `handshake_timeout` is in nanoseconds, and 0 disables it.
    """
    chain = listener_components_pb2.FilterChain(name=name, filters=filters, transport_socket=socket, metadata=source)
    if match is not None:
        _set_match(chain, match)
    if handshake_timeout:
        chain.transport_socket_connect_timeout.CopyFrom(build_duration(handshake_timeout))
    return ChainParts(chain.SerializeToString(deterministic=True), manager)


def _set_match(chain: listener_components_pb2.FilterChain, match: ChainMatch) -> None:
    condition = chain.filter_chain_match
    condition.SetInParent()
    condition.server_names.extend(match.server_names)
    condition.application_protocols.extend(match.alpns)
    condition.transport_protocol = match.transport
    condition.prefix_ranges.extend(c for text in match.cidrs if (c := build_cidr(text)) is not None)
    if match.port:
        condition.destination_port.value = match.port


def build_black_hole_chain(name: str, port: int, options: NetworkOptions, inbound: bool = False) -> ChainParts:
    """Return the chain that drops connections to the capture port itself.

    Otherwise, they would be captured in a loop.
    """
    filters = build_tcp_filters(
        single_cluster_route(names.BLACK_HOLE_CLUSTER), Protocol.TCP, options, inbound=inbound, logged=False
    )
    return build_chain(ChainMatch(port=port), filters, name=name)


def build_source(kind: str, key: ObjectKey) -> base_pb2.Metadata:
    """Return metadata that identifies the object from which a chain was built."""
    fields = struct_pb2.Struct()
    fields.fields["config"].string_value = names.config_path(kind, key.namespace, key.name)
    return base_pb2.Metadata(filter_metadata={"istio": fields})
