"""Plans the listeners of a gateway, and the keys of their filter chains. Each chain is then built separately.

The chains of a listener are distinguished by SNI. Envoy rejects a listener if two of its chains match the same server
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.config.networking.gateway import Server
from pilot.config.networking.virtual_service import L4MatchAttributes, TLSMatchAttributes, VirtualService
from pilot.config.object import ObjectKey
from pilot.config.protocol import parse_protocol
from pilot.envoy.listener.listener_address import FIRST_UNPRIVILEGED_PORT
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


class GatewayListenerKey(NamedTuple):
    """The key of a gateway's listener. A `quic` listener uses UDP."""

    number: int
    bind: str
    quic: bool = False


class PlainChain(NamedTuple):
    """The key of a chain for plaintext HTTP. It handles all connections to the port."""

    route: GatewayRouteKey
    protocol: str


class HttpsChain(NamedTuple):
    """The key of a chain that terminates TLS or QUIC and speaks HTTP."""

    server: ServerKey
    route: GatewayRouteKey


class TcpChain(NamedTuple):
    """The key of a chain for a TCP rule of a VirtualService. The chain terminates TLS if the server has TLS.

    `of_tls` is set if `rule` refers to a TLS rule instead.
    """

    server: ServerKey
    virtual_service: ObjectKey
    rule: int
    of_tls: bool = False


class SniChain(NamedTuple):
    """The key of a chain for a TLS rule of a VirtualService. The chain forwards TLS by SNI, without terminating it."""

    server: ServerKey
    virtual_service: ObjectKey
    rule: int
    hosts: tuple[str, ...]


class AutoPassthroughChain(NamedTuple):
    """The key of a chain that forwards mesh TLS to the cluster that the SNI names."""

    service: ServiceRef
    port: int
    subset: str


class AutoPassthroughServer(NamedTuple):
    """Placeholder for the chains of a server that forwards mesh TLS to the services that match its hosts.

    It keeps the position of these chains in the listener.
    """

    server: ServerKey


class DuplicateMatch(NamedTuple):
    """A match of a TLS rule that has no chain.

    Some of its names already belong to an older match, or to a server that terminates TLS.
    """

    virtual_service: ObjectKey
    rule: int
    match: int
    names: tuple[str, ...]


GatewayChainKey = PlainChain | HttpsChain | TcpChain | SniChain | AutoPassthroughChain
PlannedChain = PlainChain | HttpsChain | TcpChain | SniChain | AutoPassthroughServer


class BoundL4Rules(NamedTuple):
    """The TCP and TLS rules of a VirtualService that is bound to a Gateway. Each rule has its position and its matches.

    `for_terminated_tls` is set if the TLS rules also apply to servers that terminate TLS, as is the case for a
    TLSRoute.
    """

    key: ObjectKey
    hosts: tuple[str, ...]
    tcp: tuple[tuple[int, tuple[L4MatchAttributes, ...]], ...]
    tls: tuple[tuple[int, tuple[TLSMatchAttributes, ...]], ...]
    for_terminated_tls: bool = False

    @classmethod
    def of(cls, key: ObjectKey, spec: VirtualService, for_terminated_tls: bool = False) -> BoundL4Rules:
        """Return the TCP and TLS rules of a VirtualService. Rules without a destination are omitted."""
        tcp = tuple((i, rule.match) for i, rule in enumerate(spec.tcp) if rule.route)
        return cls(
            key,
            spec.hosts,
            tcp,
            tuple((i, rule.match) for i, rule in enumerate(spec.tls) if rule.route),
            for_terminated_tls,
        )


def plan_listeners(
    gateway: MergedGateway, wildcard: str, unprivileged: bool
) -> dict[GatewayListenerKey, tuple[MergedPort, ...]]:
    """Return a mapping from the listeners of a gateway to the merged ports that share each listener.

    `wildcard` is the address for servers that specify none. Unprivileged pods cannot bind low ports.
    """
    listeners: dict[GatewayListenerKey, tuple[MergedPort, ...]] = {}
    for port in gateway.ports:
        if unprivileged and port.number < FIRST_UNPRIVILEGED_PORT:
            continue
        bind = port.bind or wildcard
        for listener in (GatewayListenerKey(port.number, bind), GatewayListenerKey(port.number, bind, True)):
            if port.quic or not listener.quic:
                listeners[listener] = (*listeners.get(listener, ()), port)
    return listeners


class ChainPlan(NamedTuple):
    """The chains of a listener, and the matches and servers that have no chain."""

    chains: tuple[PlannedChain, ...]
    duplicates: tuple[DuplicateMatch, ...] = ()
    shadowed: tuple[ServerKey, ...] = ()


def plan_chains(
    ports: Sequence[MergedPort],
    quic: bool,
    servers: Mapping[ServerKey, Server],
    bound: Mapping[ObjectKey, Sequence[BoundL4Rules]],
    limits: Mapping[ObjectKey, int],
) -> ChainPlan:
    """Return the plan for the chains of a listener.

    `bound` maps each Gateway to the rules of its VirtualServices, in order of precedence. `limits` maps it to the
    maximum number of chains for the TLS rules of each of these VirtualServices.
    """
    if quic:
        return ChainPlan(tuple(HttpsChain(s.key, s.route) for p in ports for s in p.quic if s.route is not None))
    planner = _Planner(servers, bound, limits)
    return ChainPlan(
        tuple(chain for port in ports for chain in planner.port(port)),
        tuple(planner.duplicates),
        tuple(planner.shadowed),
    )


class _Planner:
    def __init__(
        self,
        servers: Mapping[ServerKey, Server],
        bound: Mapping[ObjectKey, Sequence[BoundL4Rules]],
        limits: Mapping[ObjectKey, int],
    ) -> None:
        self.servers, self.bound, self.limits = servers, bound, limits
        self.chains: Counter[ObjectKey] = Counter()
        self.terminated_names = {
            name
            for s in servers.values()
            if is_tls(s) and not passes_through(s)
            for name in map(str.lower, sni_hosts(s))
        }
        self.matched_names: set[str] = set()
        self.duplicates: list[DuplicateMatch] = []
        self.shadowed: list[ServerKey] = []

    def port(self, port: MergedPort) -> Iterator[PlannedChain]:
        if parse_protocol(port.protocol).is_http:
            if port.route is not None and self._match_names(port.servers[0].key, ()):
                yield PlainChain(port.route, port.protocol)
            return
        for merged in port.servers:
            server = self.servers[merged.key]
            if terminates_https(server) and merged.route is not None:
                if self._match_names(merged.key, sni_hosts(server)):
                    yield HttpsChain(merged.key, merged.route)
            elif not passes_through(server):
                yield from self._tcp(merged.key, server)
            elif server.tls is not None and server.tls.mode == "AUTO_PASSTHROUGH":
                yield AutoPassthroughServer(merged.key)
            else:
                yield from self._tls(merged.key, server)

    def _match_names(self, key: ServerKey, names: Sequence[str]) -> bool:
        """Add the names of a server that terminates TLS. If it has no names, add "*" for all connections.

        Return False if an older server already has one of the names. This happens if one server specifies the wildcard
        address and the other specifies no address.
        """
        matched = {"*"} if "*" in names or not names else {name.lower() for name in names}
        if is_free := self.matched_names.isdisjoint(matched):
            self.matched_names |= matched
        else:
            self.shadowed.append(key)
        return is_free

    def _tcp(self, key: ServerKey, server: Server) -> Iterator[TcpChain]:
        """Yield the chain for the first rule that applies. A server has at most one chain."""
        for service in self._services(key, server):
            rules: list[tuple[int, Sequence[L4MatchAttributes | TLSMatchAttributes], bool]] = [
                (n, m, False) for n, m in service.tcp
            ]
            if service.for_terminated_tls and server.tls is not None:
                rules += ((n, m, True) for n, m in service.tls)
            for position, matches, of_tls in rules:
                if (not matches and not of_tls) or any(can_reach(m, server, key.gateway) for m in matches):
                    if self._match_names(key, sni_hosts(server)):
                        yield TcpChain(key, service.key, position, of_tls)
                    return

    def _tls(self, key: ServerKey, server: Server) -> Iterator[SniChain]:
        for service in self._services(key, server):
            for position, matches in service.tls:
                for index, match in enumerate(matches):
                    if not can_reach(match, server, key.gateway):
                        continue
                    if self.chains[service.key] >= self.limits[key.gateway]:
                        break
                    if duplicates := tuple(
                        h
                        for h in match.sni_hosts
                        if h.lower() in self.matched_names or h.lower() in self.terminated_names
                    ):
                        self.duplicates.append(DuplicateMatch(service.key, position, index, duplicates))
                        continue
                    self.matched_names.update(map(str.lower, match.sni_hosts))
                    self.chains[service.key] += 1
                    yield SniChain(key, service.key, position, match.sni_hosts)

    def _services(self, key: ServerKey, server: Server) -> Iterator[BoundL4Rules]:
        return (s for s in self.bound.get(key.gateway, ()) if shares_host(server.hosts, s.key.namespace, s.hosts))


def can_reach(match: L4MatchAttributes | TLSMatchAttributes, server: Server, gateway: ObjectKey) -> bool:
    """Return whether a connection to the server can meet the condition.

    Only the port and the gateway are evaluated, because a gateway's clients have no labels or namespace.
    """
    assert server.port is not None
    names_gateway = not match.gateways or f"{gateway.namespace}/{gateway.name}" in match.gateways
    return names_gateway and match.port in (0, server.port.number)


def shares_host(server_hosts: Iterable[str], namespace: str, service_hosts: Sequence[str]) -> bool:
    """Return whether a VirtualService in the namespace may use the server.

    It may do so if at least one of its hosts overlaps with a host of the server.
    """
    for server_host in server_hosts:
        server_namespace, _, host = server_host.rpartition("/")
        if server_namespace in ("", namespace) and any(hosts.matches(host, h) for h in service_hosts):
            return True
    return False
