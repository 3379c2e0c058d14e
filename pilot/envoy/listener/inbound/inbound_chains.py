"""Builds inbound filter chains: for each port of a workload, by what it speaks and by which TLS its clients may come with."""

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
from pilot.envoy.listener.filter_chain import ChainMatch, build_chain, build_source
from pilot.envoy.listener.listener_address import listener_name
from pilot.envoy.listener.listener_filters import Inspection
from pilot.envoy.listener.listener_options import ListenerOptions
from pilot.envoy.listener.listener_parts import ChainParts
from pilot.envoy.listener.manager_template import with_routes
from pilot.envoy.listener.outbound.outbound_draft import RAW_BUFFER
from pilot.envoy.network_filter.tcp_filters import build_first_filters, build_tcp_filters
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, TcpSettings
from pilot.mesh.model.service import Port
from pilot.mesh.security.mtls import Mode

TLS = "tls"
DETECTED_HTTP = frozenset(("http/1.1", "h2c"))
MESH_HTTP_ALPNS = ("istio-http/1.0", "istio-http/1.1", "istio-h2")
MESH_TCP_ALPNS = ("istio-peer-exchange", "istio")
MESH_ALPNS = ("istio", "istio-peer-exchange", *MESH_HTTP_ALPNS)
CATCH_ALL_HTTP_CHAIN = "virtualInbound-catchall-http"


class InboundMatch(NamedTuple):
    """Says what a connection must be like. `http`: the chain speaks HTTP; `ends_tls`: it ends the TLS of the mesh (or the user's)."""

    http: bool
    transport: str
    alpns: tuple[str, ...] = ()
    ends_tls: bool = False


def find_matches(protocol: Protocol, mode: Mode, plaintext: tuple[str, ...]) -> tuple[InboundMatch, ...]:
    """Returns what the connections of each chain of a port must be like. `plaintext`: what inspection says of HTTP without TLS.

    PERMISSIVE takes the mesh's TLS, which its ALPN tells apart, and what is not of the mesh as it comes. Where the protocol is not
    known, the clients' proxies tell by ALPN what they have detected, and inspection tells of those without.
    """
    known = protocol is not Protocol.UNSUPPORTED
    http = protocol.is_http
    if mode == "STRICT":
        if known:
            return (InboundMatch(http, TLS, ends_tls=True),)
        return InboundMatch(True, TLS, MESH_HTTP_ALPNS, True), InboundMatch(False, TLS, ends_tls=True)
    if mode == "PERMISSIVE":
        if http:
            return InboundMatch(True, TLS, MESH_ALPNS, True), InboundMatch(True, RAW_BUFFER)
        if known:
            return InboundMatch(False, TLS, MESH_ALPNS, True), InboundMatch(False, TLS), InboundMatch(False, RAW_BUFFER)
        return (
            InboundMatch(True, TLS, MESH_HTTP_ALPNS, True),
            InboundMatch(True, RAW_BUFFER, plaintext),
            InboundMatch(False, TLS, MESH_TCP_ALPNS, True),
            InboundMatch(False, RAW_BUFFER),
            InboundMatch(False, TLS),
        )
    if known:
        return (InboundMatch(http, RAW_BUFFER),)
    return InboundMatch(True, RAW_BUFFER, plaintext), InboundMatch(False, RAW_BUFFER)


class InboundChainsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Says what the chains of one port are made by.

    `number`: that the workload listens on, 0 for all that nothing names; `port`: of the service, `host` its name; `cluster`: where it
    leads; `bind`: as names have it; `tls`: what a Sidecar ends here; `source`: that Sidecar; `stat_prefix`: of TCP. `within`: connections come out
    of a tunnel, and must be to one of these addresses.
    """

    number: int
    port: Port
    host: str
    cluster: str
    mode: Mode
    stat_prefix: str
    bind: tuple[str, ...] = ()
    to_port: bool = False
    tls: ServerTLSSettings | None = None
    source: ObjectKey | None = None
    within: tuple[str, ...] = ()

    @property
    def exchanges(self) -> bool:
        """Returns whether the peers of HTTP may exchange metadata: not through a tunnel, as far as it is known that HTTP is spoken."""
        return not self.within or self.passthrough

    @property
    def passthrough(self) -> bool:
        """Returns whether it is for ports that no service or Sidecar names."""
        return not self.host

    @property
    def protocol(self) -> Protocol:
        """Returns what is spoken behind the TLS that ends here."""
        if self.tls is None:
            return self.port.protocol
        return {Protocol.HTTPS: Protocol.HTTP, Protocol.TLS: Protocol.TCP}.get(self.port.protocol, self.port.protocol)

    @property
    def name(self) -> str:
        """Returns the name of a listener of its own, which stands in statistics too."""
        return listener_name(self.bind[0], self.number)

    def matches(self, plaintext: tuple[str, ...]) -> tuple[InboundMatch, ...]:
        """Returns what connections of each chain must be like. TLS of a Sidecar's own counts only where the mesh's is off."""
        if self.tls is not None and self.mode == "DISABLE":
            return (InboundMatch(self.protocol.is_http, TLS, ends_tls=True),)
        return find_matches(self.protocol, self.mode, plaintext)


class InboundChain(NamedTuple):
    """Holds a chain, and what must be known of a connection to choose it."""

    parts: ChainParts
    port: int
    inspection: Inspection


class Materials(NamedTuple):
    """Holds what the chains of a proxy are put together from: a serialized manager without statistics and routes, the sockets that end
    TLS, and how listeners are made."""

    manager: bytes
    http_tls: base_pb2.TransportSocket | None
    tcp_tls: base_pb2.TransportSocket | None
    options: ListenerOptions


def build_chains(
    spec: InboundChainsKey, routes: route_pb2.RouteConfiguration, materials: Materials, plaintext: tuple[str, ...]
) -> tuple[InboundChain, ...]:
    """Returns the chains of a port."""
    matches = spec.matches(plaintext)
    stat_prefix = f"{spec.cluster};" if spec.passthrough else f"inbound_{spec.name};"
    manager = materials.manager + with_routes(stat_prefix, routes) if any(m.http for m in matches) else b""
    return tuple(_build_chain(spec, m, materials, manager) for m in matches)


def _build_chain(spec: InboundChainsKey, match: InboundMatch, materials: Materials, manager: bytes) -> InboundChain:
    socket = (materials.http_tls if match.http else materials.tcp_tls) if match.ends_tls else None
    condition = ChainMatch(
        alpns=match.alpns, transport="" if spec.within else match.transport, port=spec.number, cidrs=spec.within
    )
    source = build_source("sidecar", spec.source) if spec.source is not None else None
    network = materials.options.network
    filters = (
        build_first_filters(network, spec.number, inbound=spec.exchanges)
        if match.http
        else _tcp_filters(spec, materials.options)
    )
    parts = build_chain(
        condition, filters, manager if match.http else b"", name=_name(spec, match.http), socket=socket, source=source
    )
    return InboundChain(
        parts,
        spec.number,
        Inspection(match.transport == TLS and not spec.within, not DETECTED_HTTP.isdisjoint(match.alpns)),
    )


def _tcp_filters(spec: InboundChainsKey, options: ListenerOptions) -> list[listener_components_pb2.Filter]:
    route = TcpRoute(spec.stat_prefix, ((spec.cluster, 0),), settings=TcpSettings(idle_timeout=options.idle_timeout))
    return build_tcp_filters(route, spec.protocol, options.network, spec.port.number, inbound=True, guarded=True)


def _name(spec: InboundChainsKey, http: bool) -> str:
    if spec.passthrough:
        return CATCH_ALL_HTTP_CHAIN if http else names.VIRTUAL_INBOUND
    return spec.name
