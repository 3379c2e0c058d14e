"""Merges the servers of several Gateways by port, and detects conflicts between them.

The rules are those of https://istio.io/latest/docs/reference/config/networking/gateway/. Where they are silent,
istiod's rules apply: the first server on a port and bind address takes precedence; plaintext HTTP servers share one
route configuration; TLS servers are distinguished by SNI, so their hosts must be distinct.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pilot.config.networking.gateway import Server
from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol, parse_protocol
from pilot.derive import Steps
from pilot.mesh.gateways.servers import (
    GatewayRouteKey,
    MergedGateway,
    MergedPort,
    MergedServer,
    Rejection,
    ServerKey,
    TargetPort,
    gateway_route_key,
    is_tls,
    passes_through,
    protocol_of,
    sni_hosts,
)
from pilot.mesh.model.service import ServiceRef

STEP = 256
"""Number of servers that are merged in a step, which takes a few milliseconds."""
NOBODY: Mapping[ObjectKey, frozenset[ServiceRef]] = MappingProxyType({})


class MergeKey(NamedTuple):
    """The key of a listener. Servers with equal keys share it.

    The protocol is the configured one, so HTTPS and TLS on the same port stay separate.
    """

    number: int
    protocol: str
    bind: str


def merge_in_steps(
    gateways: Iterable[tuple[ObjectKey, Sequence[Server]]],
    targets: Sequence[TargetPort],
    quic: bool,
    named: Mapping[ObjectKey, frozenset[ServiceRef]] = NOBODY,
) -> Steps[MergedGateway]:
    """Merge the servers of Gateways in steps, and return them. The Gateways are ordered oldest first.

    - `quic`: whether HTTPS servers also serve HTTP/3 if their port is exposed over UDP.
    - `named`: the services that a Gateway is limited to.
    """
    merger = _Merger(targets, quic)
    for name, servers in gateways:
        for position, server in enumerate(servers):
            merger.add(ServerKey(name, position), server, named.get(name))
            if position % STEP == STEP - 1:
                yield None
    return merger.result()


def resolve_port(number: int, targets: Sequence[TargetPort]) -> int:
    """Return the port on which a router listens for a Gateway's port.

    It is the target port of the first service that has the port, or else the port itself.
    """
    return next((t.target for t in targets if t.translates and t.number == number), number)


def resolve_named_port(number: int, targets: Sequence[TargetPort], services: frozenset[ServiceRef]) -> tuple[int, ...]:
    """Return the target ports of a Gateway's port in the given services."""
    return tuple(sorted({t.target for t in targets if t.number == number and t.service in services}))


class _Merger:
    """Builds the merged gateway, one server at a time."""

    def __init__(self, targets: Sequence[TargetPort], quic: bool) -> None:
        self.targets, self.quic = targets, quic
        self.by_key: dict[MergeKey, list[MergedServer]] = {}
        self.shared: dict[MergeKey, GatewayRouteKey | None] = {}  # the route of plaintext HTTP servers
        self.datagram: dict[MergeKey, list[MergedServer]] = {}
        self.plain: dict[int, MergeKey] = {}  # keyed by port number
        self.routes: dict[GatewayRouteKey, list[ServerKey]] = {}
        self.tls_hosts: dict[int, dict[str, str]] = {}  # keyed by port number and then host: the bind address
        self.http3: set[GatewayRouteKey] = set()
        self.auto_passthrough = False
        self.rejected: list[Rejection] = []

    def add(self, key: ServerKey, server: Server, services: frozenset[ServiceRef] | None = None) -> None:
        if server.port is None:
            self.rejected.append(Rejection(key, "no port is set"))
        elif services is None:
            self._add(key, server, resolve_port(server.port.number, self.targets))
        else:
            for number in resolve_named_port(server.port.number, self.targets, services):
                self._add(key, server, number)

    def _add(self, key: ServerKey, server: Server, number: int) -> None:
        assert server.port is not None
        route = gateway_route_key(server, number, key.gateway)
        if server.tls is not None and (repeated := self._repeated(server, number)):
            self.rejected.append(Rejection(key, f"port {number} already has TLS for {', '.join(repeated)}"))
            return
        if server.tls is not None and server.tls.mode == "AUTO_PASSTHROUGH":
            self.auto_passthrough = True
        at = MergeKey(number, server.port.protocol, server.bind)
        reason = self._place(MergedServer(key, route), server, at)
        if reason:
            self.rejected.append(Rejection(key, reason))

    def _repeated(self, server: Server, number: int) -> list[str]:
        """Return the hosts of a server that an older TLS server on the same port and bind address already has. If there
        are none, reserve all hosts of the server.

        Namespaces are ignored, because a TLS handshake does not identify the namespace of a host's VirtualServices.
        """
        reserved = self.tls_hosts.setdefault(number, {})
        names = sni_hosts(server) if is_tls(server) else server.hosts
        repeated = [h for h in names if reserved.get(h.lower()) == server.bind]
        if not repeated:
            reserved.update((h.lower(), server.bind) for h in names)
        return repeated

    def _place(self, merged: MergedServer, server: Server, at: MergeKey) -> str:
        """Add a server to a listener. Return "", or the reason why the server cannot be added."""
        current = self.plain.get(at.number)
        if current is not None:
            return self._join_plain(merged, server, at, current)
        if is_tls(server):
            return self._join_tls(merged, server, at)
        self._open(merged, server, at)
        return ""

    def _join_plain(self, merged: MergedServer, server: Server, at: MergeKey, current: MergeKey) -> str:
        if current.bind == at.bind:
            if not _compatible(parse_protocol(at.protocol), parse_protocol(current.protocol)):
                return f"port {at.number} already has the protocol {current.protocol}"
            self._append(merged, current)
        elif at not in self.by_key:
            self._open(merged, server, at)
        else:
            self.shared[at] = merged.route
            self._append(merged, at)
            self._advertise(merged, server, at)
        return ""

    def _append(self, merged: MergedServer, at: MergeKey) -> None:
        self.by_key[at].append(merged)
        if merged.route is not None:
            self.routes.setdefault(merged.route, []).append(merged.key)

    def _join_tls(self, merged: MergedServer, server: Server, at: MergeKey) -> str:
        if merged.route is not None:
            if merged.route in self.routes:
                return f"port {at.number} already has a server with this port name"
            self.routes[merged.route] = [merged.key]
        self.by_key.setdefault(at, []).append(merged)
        self._advertise(merged, server, at)
        return ""

    def _open(self, merged: MergedServer, server: Server, at: MergeKey) -> None:
        if not is_tls(server):
            self.plain[at.number] = at
        if merged.route is not None:
            self.routes[merged.route] = [merged.key]
        self.by_key.setdefault(at, []).append(merged)
        self.shared[at] = merged.route
        self._advertise(merged, server, at)

    def _advertise(self, merged: MergedServer, server: Server, at: MergeKey) -> None:
        """Enable HTTP/3 for an HTTPS server if the setting `quic` is on and the server's port is exposed over UDP."""
        assert server.port is not None
        eligible = (
            self.quic
            and server.tls is not None
            and protocol_of(server) is Protocol.HTTPS
            and not passes_through(server)
        )
        if eligible and any(t.udp and t.number == server.port.number for t in self.targets):
            self.datagram.setdefault(at, []).append(merged)
            if merged.route is not None:
                self.http3.add(merged.route)

    def result(self) -> MergedGateway:
        ports = tuple(
            MergedPort(
                at.number, at.protocol, at.bind, self.shared.get(at), tuple(servers), tuple(self.datagram.get(at, ()))
            )
            for at, servers in self.by_key.items()
        )
        return MergedGateway(
            ports,
            tuple((name, tuple(keys)) for name, keys in self.routes.items()),
            frozenset(self.http3),
            self.auto_passthrough,
            tuple(self.rejected),
        )


def _compatible(new: Protocol, current: Protocol) -> bool:
    return current.is_http and (new.is_http or new is current)
