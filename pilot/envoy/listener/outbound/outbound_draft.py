"""Outbound listeners before they are built. The filter chains of services that share a listener are merged."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.envoy.listener.manager_template import ManagerKey
from pilot.envoy.network_filter.tcp_proxy import TcpRoute
from pilot.lib.hosts import is_server_name
from pilot.mesh.model.service import Port

SERVER_FIRST = frozenset({Protocol.MONGO, Protocol.MYSQL})


class HttpRoutes(NamedTuple):
    """The class of an HTTP chain's HTTP connection manager, and the name of its route configuration."""

    kind: ManagerKey
    routes: str


class OutboundChainKey(NamedTuple):
    """The key of a filter chain.

    The fields for the match conditions come first. `()` and "" match every connection. `protocol` selects protocol
    filters for TCP. `source` is the VirtualService from which the chain was built. If `dynamic_host` is set, it is the
    service's wildcard host, and the name in the SNI is resolved.
    """

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
        """Return whether the chain matches every connection."""
        return not (self.alpns or self.transport or self.cidrs) and (not self.sni or "*" in self.sni)

    @property
    def condition(self) -> tuple[object, ...]:
        """A value that is equal for chains that Envoy considers duplicates."""
        names = frozenset(s.lower() for s in self.sni if s != "*")
        return self.transport, self.alpns, names, frozenset(c for text in self.cidrs if (c := _network(text)))

    @property
    def names(self) -> list[str]:
        """The server names in the form that Envoy compares. "" matches every name."""
        return ["" if "*" in self.sni else name.lower() for name in self.sni] or [""]

    @property
    def networks(self) -> list[str]:
        """The destination networks in the form that Envoy compares. "" matches every address."""
        return [c for text in self.cidrs if (c := _network(text))] or [""]


def _distinct(texts: Iterable[str], normalize: Callable[[str], str]) -> tuple[str, ...]:
    """Return the strings, without those whose normal form equals that of an earlier string."""
    by_form: dict[str, str] = {}
    for text in texts:
        by_form.setdefault(normalize(text), text)
    return tuple(by_form.values())


def _matched_cells(
    chain: OutboundChainKey, names: Iterable[str], networks: Collection[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Return all combinations of conditions that the chain matches, given these names and networks.

    No two chains of a listener may have a combination in common.
    """
    return (
        (chain.transport, alpn, name, network)
        for alpn in chain.alpns or ("",)
        for name in names
        for network in networks
    )


@lru_cache(maxsize=16_384)
def _network(text: str) -> str:
    """Return the normal form of a network, or "" if it contains all addresses."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return ""
    return "" if text.partition("/")[0] == "0.0.0.0" else str(network)


class OutboundListenerKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The key of an outbound listener. `unmatched` is the cluster for connections that match no chain."""

    binds: tuple[str, ...]
    port: int
    binds_port: bool
    chains: tuple[OutboundChainKey, ...]
    unmatched: str


class ListenerDraft:
    """A draft of a listener, which collects the chains of several services."""

    def __init__(self) -> None:
        self.chains: dict[tuple[object, ...], OutboundChainKey] = {}
        self.matched: set[tuple[str, str, str, str]] = set()
        self.protocol: Protocol | None = None
        self.port: Port | None = None
        self.binds: tuple[str, ...] = ()
        self.binds_port = False

    @property
    def empty(self) -> bool:
        return self.protocol is None

    def can_share(self, protocol: Protocol) -> bool:
        """Return whether a service with this protocol may share the listener.

        If the server sends first, the protocol cannot be detected. The listener is then not shared with other
        protocols.
        """
        return self.protocol is None or self.protocol is protocol or SERVER_FIRST.isdisjoint((self.protocol, protocol))

    def reset(
        self, port: Port, binds: tuple[str, ...], binds_port: bool, protocol: Protocol, chains: list[OutboundChainKey]
    ) -> None:
        """Replace the content of the draft with the chains of a service."""
        self.port, self.binds, self.binds_port, self.protocol = port, binds, binds_port, protocol
        self.chains, self.matched = {}, set()
        self.merge(chains)

    def merge(self, chains: list[OutboundChainKey]) -> None:
        """Add chains to the draft.

        If several chains have equal conditions, the first takes precedence. Later chains lose the names and networks
        that are already matched. Invalid server names are removed.

        Envoy rejects a listener if two of its chains match the same connection, or if a server name is not valid for
        SNI.
        """
        for chain in chains:
            if chain.condition in self.chains:
                continue
            unmatched = self._without_overlap(chain) if chain.sni or chain.cidrs else chain
            if unmatched is not None:
                self.chains.setdefault(unmatched.condition, unmatched)
                self.matched.update(_matched_cells(unmatched, unmatched.names, unmatched.networks))

    def _without_overlap(self, chain: OutboundChainKey) -> OutboundChainKey | None:
        """Return the chain without the names that are already matched. If no names remain, omit networks instead.

        Return None if neither is possible.
        """
        chain = chain._replace(sni=_distinct(chain.sni, str.lower), cidrs=_distinct(chain.cidrs, _network))
        usable = tuple(name for name in chain.sni if is_server_name(name))
        if chain.sni and not usable:
            return None
        if usable != chain.sni:
            chain = chain._replace(sni=usable)
        names, networks = chain.names, chain.networks
        if self.matched.isdisjoint(_matched_cells(chain, names, networks)):
            return chain
        if free := [n for n in names if self.matched.isdisjoint(_matched_cells(chain, [n], networks))]:
            return chain._replace(sni=tuple(n for n in chain.sni if n.lower() in free))
        if free := [n for n in networks if self.matched.isdisjoint(_matched_cells(chain, names, [n]))]:
            return chain._replace(cidrs=tuple(c for c in chain.cidrs if _network(c) in free))
        return None
