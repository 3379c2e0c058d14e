"""Builds the inbound filter chains for a port of a workload. They depend on the protocol and the accepted mTLS mode."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.route.v3 import route_pb2

from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.envoy import names
from pilot.envoy.listener.filter_chain import (
    HTTP_ALPNS,
    MESH_ALPNS,
    MESH_HTTP_ALPNS,
    MESH_TCP_ALPNS,
    RAW_BUFFER,
    ChainMatch,
    build_chain,
    build_source,
)
from pilot.envoy.listener.listener_address import listener_name
from pilot.envoy.listener.listener_filters import Inspection
from pilot.envoy.listener.listener_options import ListenerOptions
from pilot.envoy.listener.listener_parts import ChainParts
from pilot.envoy.listener.manager_template import inline_route_fields
from pilot.envoy.network_filter.tcp_filters import build_first_filters, build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, TcpSettings
from pilot.mesh.model.service import Port
from pilot.mesh.security.mtls import Mode

TLS = "tls"
CATCH_ALL_HTTP_CHAIN = "virtualInbound-catchall-http"


class InboundMatch(NamedTuple):
    """The match of a filter chain.

    `http` is set if the chain speaks HTTP. `terminates_tls` is set if it terminates mesh TLS or TLS that a user
    configured.
    """

    http: bool
    transport: str
    alpns: tuple[str, ...] = ()
    terminates_tls: bool = False


def inbound_matches(protocol: Protocol, mode: Mode, plaintext: tuple[str, ...]) -> tuple[InboundMatch, ...]:
    """Return the matches of a port's chains. `plaintext` are the protocols that inspection reports for plaintext HTTP.

    In mode PERMISSIVE, the chains terminate mesh TLS, which is identified by its ALPN, and accept all other connections
    unchanged. If the port's protocol is unknown, the ALPN of a mesh connection tells which protocol the client's proxy
    detected. For other connections, inspection detects the protocol.
    """
    is_known = protocol is not Protocol.UNSUPPORTED
    http = protocol.is_http
    if mode == "STRICT":
        if is_known:
            return (InboundMatch(http, TLS, terminates_tls=True),)
        return InboundMatch(True, TLS, MESH_HTTP_ALPNS, True), InboundMatch(False, TLS, terminates_tls=True)
    if mode == "PERMISSIVE":
        if http:
            return InboundMatch(True, TLS, MESH_ALPNS, True), InboundMatch(True, RAW_BUFFER)
        if is_known:
            return InboundMatch(False, TLS, MESH_ALPNS, True), InboundMatch(False, TLS), InboundMatch(False, RAW_BUFFER)
        return (
            InboundMatch(True, TLS, MESH_HTTP_ALPNS, True),
            InboundMatch(True, RAW_BUFFER, plaintext),
            InboundMatch(False, TLS, MESH_TCP_ALPNS, True),
            InboundMatch(False, RAW_BUFFER),
            InboundMatch(False, TLS),
        )
    if is_known:
        return (InboundMatch(http, RAW_BUFFER),)
    return InboundMatch(True, RAW_BUFFER, plaintext), InboundMatch(False, RAW_BUFFER)


class InboundChainsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The key of the filter chains for one port.

    `number` is the port on which the workload listens, or 0 for all ports that no service or Sidecar declares. `port`
    and `host` belong to the service. `cluster` is the destination. `bind` determines the name of the listener. `tls` is
    the TLS that the Sidecar `source` terminates. `stat_prefix` is the statistics prefix for TCP. If `tunnel_targets` is
    not empty, the chains are for tunnelled connections to these addresses.
    """

    number: int
    port: Port
    host: str
    cluster: str
    mode: Mode
    stat_prefix: str
    bind: tuple[str, ...] = ()
    binds_port: bool = False
    tls: ServerTLSSettings | None = None
    source: ObjectKey | None = None
    tunnel_targets: tuple[str, ...] = ()

    @property
    def exchanges_metadata(self) -> bool:
        """Return whether HTTP peers may exchange metadata. They may, except inside a tunnel to a declared port."""
        return not self.tunnel_targets or self.passthrough

    @property
    def passthrough(self) -> bool:
        """Return whether the chains are for ports that no service or Sidecar declares."""
        return not self.host

    @property
    def protocol(self) -> Protocol:
        """The protocol inside the TLS that the Sidecar terminates."""
        if self.tls is None:
            return self.port.protocol
        return {Protocol.HTTPS: Protocol.HTTP, Protocol.TLS: Protocol.TCP}.get(self.port.protocol, self.port.protocol)

    @property
    def name(self) -> str:
        """The name of a listener on this port. Statistics contain it too."""
        return listener_name(self.bind[0], self.number)

    def matches(self, plaintext: tuple[str, ...]) -> tuple[InboundMatch, ...]:
        """Return the matches of the chains. A Sidecar's TLS only takes effect if mesh TLS is disabled."""
        if self.tls is not None and self.mode == "DISABLE":
            return (InboundMatch(self.protocol.is_http, TLS, terminates_tls=True),)
        return inbound_matches(self.protocol, self.mode, plaintext)


class InboundChain(NamedTuple):
    """A filter chain, and the inspection that its match needs."""

    parts: ChainParts
    port: int
    inspection: Inspection


class ChainInputs(NamedTuple):
    """The inputs for building the chains of a proxy.

    `manager` is a serialized HTTP connection manager without a statistics prefix or routes.
    """

    manager: bytes
    http_tls: base_pb2.TransportSocket | None
    tcp_tls: base_pb2.TransportSocket | None
    options: ListenerOptions


def build_chains(
    key: InboundChainsKey, routes: route_pb2.RouteConfiguration, inputs: ChainInputs, plaintext: tuple[str, ...]
) -> tuple[InboundChain, ...]:
    """Return the chains of a port."""
    matches = key.matches(plaintext)
    stat_prefix = f"{key.cluster};" if key.passthrough else f"inbound_{key.name};"
    speaks_http = any(m.http for m in matches)
    manager = (inputs.manager, inline_route_fields(stat_prefix, routes)) if speaks_http else ()
    return tuple(_build_chain(key, m, inputs, manager) for m in matches)


def _build_chain(
    key: InboundChainsKey, match: InboundMatch, inputs: ChainInputs, manager: tuple[bytes, ...]
) -> InboundChain:
    socket = (inputs.http_tls if match.http else inputs.tcp_tls) if match.terminates_tls else None
    condition = ChainMatch(
        alpns=match.alpns,
        transport="" if key.tunnel_targets else match.transport,
        port=key.number,
        cidrs=key.tunnel_targets,
    )
    source = build_source("sidecar", key.source) if key.source is not None else None
    network = inputs.options.network
    filters = (
        build_first_filters(network, key.number, inbound=key.exchanges_metadata)
        if match.http
        else _tcp_filters(key, inputs.options)
    )
    parts = build_chain(
        condition, filters, manager if match.http else (), name=_name(key, match.http), socket=socket, source=source
    )
    return InboundChain(
        parts,
        key.number,
        Inspection(match.transport == TLS and not key.tunnel_targets, any(alpn in HTTP_ALPNS for alpn in match.alpns)),
    )


def _tcp_filters(key: InboundChainsKey, options: ListenerOptions) -> list[listener_components_pb2.Filter]:
    route = TcpRoute(key.stat_prefix, ((key.cluster, 0),), settings=TcpSettings(idle_timeout=options.idle_timeout))
    return build_tcp_filters(route, key.protocol, options.network, key.port.number, inbound=True, guarded=True)


def _name(key: InboundChainsKey, http: bool) -> str:
    if key.passthrough:
        return CATCH_ALL_HTTP_CHAIN if http else names.VIRTUAL_INBOUND
    return key.name
