"""Plans which listeners a gateway has and which filter chains each, by names; each chain is then built by itself.

A chain is told from the others of its listener by the names that clients ask for in the TLS handshake; Envoy refuses a listener
that has one of them twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.config.networking.gateway import Server
from pilot.config.networking.virtual_service import L4MatchAttributes, TLSMatchAttributes, VirtualService
from pilot.config.object import ObjectKey
from pilot.config.protocol import parse_protocol
from pilot.lib import hosts
from pilot.mesh.gateways.servers import (
    GatewayRouteKey,
    MergedGateway,
    MergedPort,
    ServerKey,
    is_tls,
    passes_through,
    sni_hosts,
    terminates_https,
)
from pilot.mesh.model.service import ServiceRef

UNPRIVILEGED_PORTS = 1024


class GatewayListenerKey(NamedTuple):
    """Names a listener; `quic`: on UDP."""

    number: int
    bind: str
    quic: bool = False


class PlainChain(NamedTuple):
    """Plans HTTP without TLS: everything on the port."""

    route: GatewayRouteKey
    protocol: str


class HttpsChain(NamedTuple):
    """Plans HTTP inside TLS (or QUIC) that ends here."""

    server: ServerKey
    route: GatewayRouteKey


class TcpChain(NamedTuple):
    """Plans a TCP rule of a VirtualService, behind TLS that ends here if the server has any. `of_tls`: it is one of its TLS rules."""

    server: ServerKey
    virtual_service: ObjectKey
    rule: int
    of_tls: bool = False


class SniChain(NamedTuple):
    """Plans a TLS rule of a VirtualService: TLS is passed on unopened, by the name that the client asks for."""

    server: ServerKey
    virtual_service: ObjectKey
    rule: int
    hosts: tuple[str, ...]


class MeshChain(NamedTuple):
    """Plans mesh TLS that is passed on to a cluster which the handshake itself names."""

    service: ServiceRef
    port: int
    subset: str


class Passages(NamedTuple):
    """Stands for a server that passes mesh TLS on to the services of its hosts: it keeps the place of their chains among the others."""

    server: ServerKey


class Repeated(NamedTuple):
    """Names a condition of a TLS rule that has no chain, for some of its names are those of a server that ends TLS, or of an older
    condition."""

    virtual_service: ObjectKey
    rule: int
    match: int
    names: tuple[str, ...]


GatewayChainKey = PlainChain | HttpsChain | TcpChain | SniChain | MeshChain
PlannedChain = PlainChain | HttpsChain | TcpChain | SniChain | Passages


class Layer4(NamedTuple):
    """Holds a VirtualService bound to a Gateway: its hosts, and the conditions of its TCP and TLS rules by their position.

    `ends_tls`: its TLS rules are for servers that end TLS too, as those of a TLSRoute are.
    """

    key: ObjectKey
    hosts: tuple[str, ...]
    tcp: tuple[tuple[int, tuple[L4MatchAttributes, ...]], ...]
    tls: tuple[tuple[int, tuple[TLSMatchAttributes, ...]], ...]
    ends_tls: bool = False

    @classmethod
    def of(cls, key: ObjectKey, spec: VirtualService, ends_tls: bool = False) -> Layer4:
        """Returns the conditions of a VirtualService; rules that lead nowhere are left out."""
        tcp = tuple((i, rule.match) for i, rule in enumerate(spec.tcp) if rule.route)
        return cls(
            key, spec.hosts, tcp, tuple((i, rule.match) for i, rule in enumerate(spec.tls) if rule.route), ends_tls
        )


def plan_listeners(
    gateway: MergedGateway, everywhere: str, unprivileged: bool
) -> dict[GatewayListenerKey, tuple[MergedPort, ...]]:
    """Returns the listeners of a gateway, each with the merged ports that share it: they differ by protocol.

    `everywhere`: the address that stands for all, where a server names none. A pod without privileges cannot listen on low ports.
    """
    found: dict[GatewayListenerKey, tuple[MergedPort, ...]] = {}
    for port in gateway.ports:
        if unprivileged and port.number < UNPRIVILEGED_PORTS:
            continue
        bind = port.bind or everywhere
        for listener in (GatewayListenerKey(port.number, bind), GatewayListenerKey(port.number, bind, True)):
            if port.quic or not listener.quic:
                found[listener] = (*found.get(listener, ()), port)
    return found


class Planned(NamedTuple):
    """Holds the chains of a listener, and what has none: conditions, and servers whose connections another server takes."""

    chains: tuple[PlannedChain, ...]
    repeated: tuple[Repeated, ...] = ()
    covered: tuple[ServerKey, ...] = ()


def plan_chains(
    ports: Sequence[MergedPort],
    quic: bool,
    servers: Mapping[ServerKey, Server],
    bound: Mapping[ObjectKey, Sequence[Layer4]],
) -> Planned:
    """Returns the chains of a listener. `bound`: the VirtualServices of each Gateway that has TCP or TLS rules, in order of precedence."""
    if quic:
        return Planned(tuple(HttpsChain(s.key, s.route) for p in ports for s in p.quic if s.route is not None))
    planner = _Planner(servers, bound)
    return Planned(
        tuple(chain for port in ports for chain in planner.port(port)), tuple(planner.repeated), tuple(planner.covered)
    )


class _Planner:
    def __init__(self, servers: Mapping[ServerKey, Server], bound: Mapping[ObjectKey, Sequence[Layer4]]) -> None:
        self.servers, self.bound = servers, bound
        self.ended = {
            name
            for s in servers.values()
            if is_tls(s) and not passes_through(s)
            for name in map(str.lower, sni_hosts(s))
        }
        self.taken: set[str] = set()
        self.repeated: list[Repeated] = []
        self.covered: list[ServerKey] = []

    def port(self, port: MergedPort) -> Iterator[PlannedChain]:
        if parse_protocol(port.protocol).is_http:
            if port.route is not None and self._take(port.servers[0].key, ()):
                yield PlainChain(port.route, port.protocol)
            return
        for merged in port.servers:
            server = self.servers[merged.key]
            if terminates_https(server) and merged.route is not None:
                if self._take(merged.key, sni_hosts(server)):
                    yield HttpsChain(merged.key, merged.route)
            elif not passes_through(server):
                yield from self._tcp(merged.key, server)
            elif server.tls is not None and server.tls.mode == "AUTO_PASSTHROUGH":
                yield Passages(merged.key)
            else:
                yield from self._tls(merged.key, server)

    def _take(self, key: ServerKey, names: Sequence[str]) -> bool:
        """Takes the names of a server that ends TLS, or all connections; returns False where an older server has some of them.

        That is so where one server names the address that stands for all, and the other names none.
        """
        asked = {"*"} if "*" in names or not names else {name.lower() for name in names}
        if free := self.taken.isdisjoint(asked):
            self.taken |= asked
        else:
            self.covered.append(key)
        return free

    def _tcp(self, key: ServerKey, server: Server) -> Iterator[TcpChain]:
        """Yields the first rule that applies; a server has one chain at most."""
        for service in self._services(key, server):
            rules: list[tuple[int, Sequence[L4MatchAttributes | TLSMatchAttributes], bool]] = [
                (n, m, False) for n, m in service.tcp
            ]
            if service.ends_tls and server.tls is not None:
                rules += ((n, m, True) for n, m in service.tls)
            for position, matches, of_tls in rules:
                if (not matches and not of_tls) or any(can_reach(m, server, key.gateway) for m in matches):
                    if self._take(key, sni_hosts(server)):
                        yield TcpChain(key, service.key, position, of_tls)
                    return

    def _tls(self, key: ServerKey, server: Server) -> Iterator[SniChain]:
        for service in self._services(key, server):
            for position, matches in service.tls:
                for index, match in enumerate(matches):
                    if not can_reach(match, server, key.gateway):
                        continue
                    if again := tuple(h for h in match.sni_hosts if h.lower() in self.taken or h.lower() in self.ended):
                        self.repeated.append(Repeated(service.key, position, index, again))
                        continue
                    self.taken.update(map(str.lower, match.sni_hosts))
                    yield SniChain(key, service.key, position, match.sni_hosts)

    def _services(self, key: ServerKey, server: Server) -> Iterator[Layer4]:
        return (s for s in self.bound.get(key.gateway, ()) if shares_host(server.hosts, s.key.namespace, s.hosts))


def can_reach(match: L4MatchAttributes | TLSMatchAttributes, server: Server, gateway: ObjectKey) -> bool:
    """Returns whether a connection to the server can meet the condition. Port and gateway decide; a gateway's clients have no labels or
    namespace to go by."""
    assert server.port is not None
    named = not match.gateways or f"{gateway.namespace}/{gateway.name}" in match.gateways
    return named and match.port in (0, server.port.number)


def shares_host(server_hosts: Iterable[str], namespace: str, service_hosts: Sequence[str]) -> bool:
    """Returns whether a VirtualService of the namespace may use the server: where two of their hosts overlap."""
    for written in server_hosts:
        limit, _, host = written.rpartition("/")
        if limit in ("", namespace) and any(hosts.matches(host, h) for h in service_hosts):
            return True
    return False
