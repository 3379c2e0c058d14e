"""Describes outbound filter chains by what makes them, before they are built, and decides how those of many services share a listener."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.envoy.listener.manager_template import ManagerKey
from pilot.envoy.network_filter.tcp_proxy import TcpRoute
from pilot.lib.hosts import is_server_name
from pilot.mesh.model.service import Port

SERVER_FIRST = frozenset({Protocol.MONGO, Protocol.MYSQL})
RAW_BUFFER = "raw_buffer"


class HttpRoutes(NamedTuple):
    """Says what a chain of HTTP does: its class of managers, and the name of its routes."""

    kind: ManagerKey
    routes: str


class OutboundChainKey(NamedTuple):
    """Describes a filter chain. Conditions come first: `()` and "" are none. `protocol`: of a TCP chain, for filters that look into it;
    `source`: the VirtualService that it is from; `dynamic_host`: the wildcard host that its SNI is resolved for."""

    sni: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()
    alpns: tuple[str, ...] = ()
    transport: str = ""
    tcp: TcpRoute | None = None
    http: HttpRoutes | None = None
    protocol: Protocol = Protocol.TCP
    source: ObjectKey | None = None
    dynamic_host: str = ""

    @property
    def matches_all(self) -> bool:
        return not (self.alpns or self.transport or self.cidrs) and (not self.sni or "*" in self.sni)

    @property
    def condition(self) -> tuple[object, ...]:
        """Returns a value that is equal for chains that Envoy takes for duplicates."""
        names = frozenset(s.lower() for s in self.sni if s != "*")
        return self.transport, self.alpns, names, frozenset(c for text in self.cidrs if (c := _network(text)))

    @property
    def names(self) -> list[str]:
        """Returns the names of TLS handshakes as Envoy compares them; "" is any."""
        return ["" if "*" in self.sni else name.lower() for name in self.sni] or [""]

    @property
    def networks(self) -> list[str]:
        """Returns the destinations, as Envoy compares them: "" is any."""
        return [c for text in self.cidrs if (c := _network(text))] or [""]


def _once(texts: Iterable[str], form: Callable[[str], str]) -> tuple[str, ...]:
    """Returns texts without those that are an earlier one in another form."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(form(text), text)
    return tuple(found.values())


def _cells(
    chain: OutboundChainKey, names: Iterable[str], networks: Collection[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Returns what the chain takes with these names and networks. No two chains of a listener may have one in common."""
    return (
        (chain.transport, alpn, name, network)
        for alpn in chain.alpns or ("",)
        for name in names
        for network in networks
    )


def _network(text: str) -> str:
    """Returns a network in its normal form, "" for one that stands for all addresses."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return ""
    return "" if text.partition("/")[0] == "0.0.0.0" else str(network)


class OutboundListenerKey(NamedTuple):
    """Describes an outbound listener. `unmatched`: the cluster for connections that no chain takes."""

    binds: tuple[str, ...]
    port: int
    to_port: bool
    chains: tuple[OutboundChainKey, ...]
    unmatched: str


class ListenerDraft:
    """Holds a listener to which the chains of one service after the other are added."""

    def __init__(self) -> None:
        self.chains: dict[tuple[object, ...], OutboundChainKey] = {}
        self.taken: set[tuple[str, str, str, str]] = set()
        self.protocol: Protocol | None = None
        self.port: Port | None = None
        self.binds: tuple[str, ...] = ()
        self.to_port = False

    @property
    def empty(self) -> bool:
        return self.protocol is None

    def accepts(self, protocol: Protocol) -> bool:
        """Returns whether a protocol may join. Those whose servers speak first share a port with nothing that would have to be told from
        them."""
        return self.protocol is None or self.protocol is protocol or SERVER_FIRST.isdisjoint((self.protocol, protocol))

    def start(
        self, port: Port, binds: tuple[str, ...], to_port: bool, protocol: Protocol, chains: list[OutboundChainKey]
    ) -> None:
        """Begins (anew) with the chains of a service."""
        self.port, self.binds, self.to_port, self.protocol = port, binds, to_port, protocol
        self.chains, self.taken = {}, set()
        self.merge(chains)

    def merge(self, chains: list[OutboundChainKey]) -> None:
        """Adds chains; the first of those with the same condition stays, and a name or network that is taken is left out of later ones.

        Envoy refuses a listener in which two chains share one, or with a name that it cannot tell TLS by.
        """
        for chain in chains:
            if chain.condition in self.chains:
                continue
            rest = self._free(chain) if chain.sni or chain.cidrs else chain
            if rest is not None:
                self.chains.setdefault(rest.condition, rest)
                self.taken.update(_cells(rest, rest.names, rest.networks))

    def _free(self, chain: OutboundChainKey) -> OutboundChainKey | None:
        """Returns the chain for the names that are free, else for the networks; None where neither is."""
        chain = chain._replace(sni=_once(chain.sni, str.lower), cidrs=_once(chain.cidrs, _network))
        usable = tuple(name for name in chain.sni if is_server_name(name))
        if chain.sni and not usable:
            return None
        if usable != chain.sni:
            chain = chain._replace(sni=usable)
        names, networks = chain.names, chain.networks
        if self.taken.isdisjoint(_cells(chain, names, networks)):
            return chain
        if free := [n for n in names if self.taken.isdisjoint(_cells(chain, [n], networks))]:
            return chain._replace(sni=tuple(n for n in chain.sni if n.lower() in free))
        if free := [n for n in networks if self.taken.isdisjoint(_cells(chain, names, [n]))]:
            return chain._replace(cidrs=tuple(c for c in chain.cidrs if _network(c) in free))
        return None
