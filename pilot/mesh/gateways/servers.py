"""Servers of Gateways, and the merged gateway of a router."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.config.networking.gateway import Server
from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol, parse_protocol
from pilot.mesh.model.service import ServiceRef


class ServerKey(NamedTuple):
    """A server of a Gateway, identified by its index."""

    gateway: ObjectKey
    position: int


class TargetPort(NamedTuple):
    """A port of a service that selects the router, and its target port.

    `translates` is False if the service opts out of the translation of Gateway ports.
    """

    number: int
    target: int
    udp: bool
    translates: bool = True
    service: ServiceRef | None = None


class GatewaySelectionKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The Gateways that select a router, oldest first, and the ports of the router's services.

    `named` pairs each Gateway that is limited to certain services with the services among them that select the router.
    """

    gateways: tuple[ObjectKey, ...] = ()
    ports: tuple[TargetPort, ...] = ()
    named: tuple[tuple[ObjectKey, frozenset[ServiceRef]], ...] = ()


class GatewayRouteKey(NamedTuple):
    """Key of a route configuration.

    For plaintext HTTP, it has the listening port and the bind address, because all servers there share the
    configuration. For an HTTPS server, it has the Gateway's port, the name of the port, and the Gateway.
    """

    port: int
    bind: str
    port_name: str = ""
    gateway: ObjectKey | None = None


class MergedServer(NamedTuple):
    """A server on a port of the router. `route` is None if it is not an HTTP server."""

    key: ServerKey
    route: GatewayRouteKey | None


class MergedPort(msgspec.Struct, frozen=True):
    """The servers that have the same port, configured protocol and bind address.

    - `route`: the route configuration that plaintext HTTP servers share.
    - `quic`: the servers that also serve HTTP/3 on the UDP port with the same number.
    """

    number: int
    protocol: str
    bind: str
    route: GatewayRouteKey | None
    servers: tuple[MergedServer, ...]
    quic: tuple[MergedServer, ...] = ()


class Rejection(NamedTuple):
    """A server that is excluded from the merged gateway, and the reason."""

    key: ServerKey
    reason: str


class MergedGateway(msgspec.Struct, frozen=True, cache_hash=True):
    """All servers of a router. Both `ports` and `routes` are ordered by their first server.

    - `http3`: the routes that advertise HTTP/3.
    - `auto_passthrough`: whether a server forwards TLS connections to any service in the mesh, selected by SNI.
    """

    ports: tuple[MergedPort, ...] = ()
    routes: tuple[tuple[GatewayRouteKey, tuple[ServerKey, ...]], ...] = ()
    http3: frozenset[GatewayRouteKey] = frozenset()
    auto_passthrough: bool = False
    rejected: tuple[Rejection, ...] = ()


def qualify_hosts(server: Server, namespace: str) -> Server:
    """Return the server with normalized hosts.

    `./host` is replaced with `namespace/host`, and `*/host` with `host`. `*/*` replaces all other hosts.
    """
    if not any(h.startswith(("./", "*/")) for h in server.hosts):
        return server
    if "*/*" in server.hosts:
        return msgspec.structs.replace(server, hosts=("*",))
    hosts = tuple(f"{namespace}/{h[2:]}" if h.startswith("./") else h.removeprefix("*/") for h in server.hosts)
    return msgspec.structs.replace(server, hosts=hosts)


def protocol_of(server: Server) -> Protocol:
    return parse_protocol(server.port.protocol if server.port is not None else "")


def passes_through(server: Server) -> bool:
    """Return whether the server forwards TLS connections without terminating them."""
    return server.tls is not None and server.tls.mode in ("PASSTHROUGH", "AUTO_PASSTHROUGH")


def is_tls(server: Server) -> bool:
    """Return whether the server uses TLS. The TLS settings of plaintext HTTP servers only configure redirects."""
    return server.tls is not None and not protocol_of(server).is_http


def terminates_https(server: Server) -> bool:
    return server.tls is not None and protocol_of(server) is Protocol.HTTPS and not passes_through(server)


def sni_hosts(server: Server) -> tuple[str, ...]:
    """Return the server names that clients may send, sorted and without namespaces. Return () if the server has no TLS
    settings."""
    return () if server.tls is None else tuple(sorted({h.rpartition("/")[2] for h in server.hosts}))


def gateway_route_key(server: Server, number: int, gateway: ObjectKey) -> GatewayRouteKey | None:
    """Return the key of a server's route configuration on a listening port, or None if it is not an HTTP server."""
    assert server.port is not None
    protocol = protocol_of(server)
    if protocol.is_http:
        return GatewayRouteKey(number, server.bind)
    if protocol is Protocol.HTTPS and not passes_through(server):
        return GatewayRouteKey(server.port.number, server.bind, server.port.name, gateway)
    return None
