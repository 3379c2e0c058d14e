"""Servers of Gateways: what they are, and the shape of a router's merged gateway."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.config.networking.gateway import Server
from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol, parse_protocol
from pilot.mesh.model.service import ServiceRef


class ServerKey(NamedTuple):
    """A server of a Gateway, by its position there."""

    gateway: ObjectKey
    position: int


class TargetPort(NamedTuple):
    """A port of a service that selects the router: what its pods listen on for it.

    `translates` is False where the service opts out of having Gateway ports looked up in it.
    """

    number: int
    target: int
    udp: bool
    translates: bool = True
    service: ServiceRef | None = None


class GatewaySelectionKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The Gateways that select a router, oldest first, and the ports of its own services, in the order of the services.

    `named`: of those that are for certain services, the services of the router among these, whose ports alone they mean.
    """

    gateways: tuple[ObjectKey, ...] = ()
    ports: tuple[TargetPort, ...] = ()
    named: tuple[tuple[ObjectKey, frozenset[ServiceRef]], ...] = ()


class GatewayRouteKey(NamedTuple):
    """A route configuration. That of plain HTTP: the port listened on and the bind address, which all its servers share.

    That of an HTTPS server, its own: the port that the Gateway names, its name, and the Gateway.
    """

    port: int
    bind: str
    port_name: str = ""
    gateway: ObjectKey | None = None


class MergedServer(NamedTuple):
    """A server on a port of the router; `route` is None where it is not an HTTP server."""

    key: ServerKey
    route: GatewayRouteKey | None


class MergedPort(msgspec.Struct, frozen=True):
    """The servers of one port, protocol (as written) and bind address. `route` is the one that plain HTTP servers share.

    `quic`: those of them that answer HTTP/3 on the same port over UDP too.
    """

    number: int
    protocol: str
    bind: str
    route: GatewayRouteKey | None
    servers: tuple[MergedServer, ...]
    quic: tuple[MergedServer, ...] = ()


class Rejection(NamedTuple):
    """A server that is left out of the merged gateway, and why."""

    key: ServerKey
    reason: str


class MergedGateway(msgspec.Struct, frozen=True, cache_hash=True):
    """All servers of a router. `ports` and `routes` (with their servers) are in the order of their first server.

    `http3` has the routes that advertise HTTP/3. `auto_passthrough` tells that some server forwards by SNI alone, to any service of the mesh.
    """

    ports: tuple[MergedPort, ...] = ()
    routes: tuple[tuple[GatewayRouteKey, tuple[ServerKey, ...]], ...] = ()
    http3: frozenset[GatewayRouteKey] = frozenset()
    auto_passthrough: bool = False
    rejected: tuple[Rejection, ...] = ()


def qualify_hosts(server: Server, namespace: str) -> Server:
    """Returns the server with `./host` made `namespace/host`, and `*/host` made `host`; `*/*` is every host, whatever else there is."""
    if not any(h.startswith(("./", "*/")) for h in server.hosts):
        return server
    if "*/*" in server.hosts:
        return msgspec.structs.replace(server, hosts=("*",))
    hosts = tuple(f"{namespace}/{h[2:]}" if h.startswith("./") else h.removeprefix("*/") for h in server.hosts)
    return msgspec.structs.replace(server, hosts=hosts)


def protocol_of(server: Server) -> Protocol:
    return parse_protocol(server.port.protocol if server.port is not None else "")


def passes_through(server: Server) -> bool:
    """Returns whether TLS is forwarded unopened."""
    return server.tls is not None and server.tls.mode in ("PASSTHROUGH", "AUTO_PASSTHROUGH")


def is_tls(server: Server) -> bool:
    """Returns whether the server has TLS settings that are not there for the redirect of plain HTTP alone."""
    return server.tls is not None and not protocol_of(server).is_http


def terminates_https(server: Server) -> bool:
    return server.tls is not None and protocol_of(server) is Protocol.HTTPS and not passes_through(server)


def sni_hosts(server: Server) -> tuple[str, ...]:
    """Returns the names that clients ask for, without namespaces, sorted; () where there is no TLS."""
    return () if server.tls is None else tuple(sorted({h.rpartition("/")[2] for h in server.hosts}))


def gateway_route_key(server: Server, number: int, gateway: ObjectKey) -> GatewayRouteKey | None:
    """Returns the route configuration of a server that listens on a port, None where it is not an HTTP server."""
    assert server.port is not None
    protocol = protocol_of(server)
    if protocol.is_http:
        return GatewayRouteKey(number, server.bind)
    if protocol is Protocol.HTTPS and not passes_through(server):
        return GatewayRouteKey(server.port.number, server.bind, server.port.name, gateway)
    return None
