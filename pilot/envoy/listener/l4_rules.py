"""Derives the TCP and TLS rules of VirtualServices, as sidecars follow them: which chains a port of a service is split into.

What can be told beforehand (gateways, the proxy's labels and namespace, the port) is decided here; what only the connection tells
(its destination, the name in its TLS handshake) becomes the condition of a chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import NamedTuple

from pilot.config.networking.virtual_service import (
    L4MatchAttributes,
    RouteDestination,
    TCPRoute,
    TLSMatchAttributes,
    VirtualService,
)
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.lib.hosts import matches
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.scope.egress_hosts import EgressHostsKey
from pilot.mesh.scope.sidecar_scope import egress_listeners
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_service_names import MESH
from pilot.mesh.traffic.virtual_services import egress_bindings, virtual_service, virtual_service_keys


class Ruled(NamedTuple):
    """Holds a VirtualService with TCP or TLS rules."""

    key: ObjectKey
    hosts: tuple[str, ...]


class L4Chain(NamedTuple):
    """Describes a chain that a rule asks for. `source`: the VirtualService, where the chain names it; `terminal`: nothing comes after it."""

    key: ObjectKey
    route: tuple[RouteDestination, ...]
    sni: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()
    named: bool = True
    terminal: bool = False


class L4Client(NamedTuple):
    """Says who connects: a proxy, by its namespace and labels."""

    namespace: str
    labels: Labels


@derived
def _ruled(db: Mesh, key: ObjectKey, _: str) -> Ruled | None:
    found = virtual_service(db, key)
    return Ruled(key, found.spec.hosts) if found is not None and (found.spec.tcp or found.spec.tls) else None


_ruled_in: Gather[ObjectKey, [str], Ruled] = Gather("l4_virtual_services", virtual_service_keys, _ruled)


@hub
def l4_virtual_services(db: Mesh, namespace: str, hosts: EgressHostsKey | None) -> tuple[Ruled, ...]:
    """Returns the VirtualServices with TCP or TLS rules that an egress listener with these hosts imports, in the order they are tried."""
    keys = [b.key for b in egress_bindings(db, namespace, hosts)]
    ruled = {ns: _ruled_in(db, ns) for ns in {k.namespace for k in keys}}
    return tuple(found for k in keys if (found := ruled[k.namespace].get(k)) is not None)


@derived
def l4_keys(db: Mesh, scope: ScopeFacet, index: int, hostname: str) -> tuple[ObjectKey, ...]:
    """Returns the keys of those VirtualServices of an egress listener, by its index, that have a host in common with a service's name."""
    hosts = egress_listeners(db, scope)[index].hosts
    return tuple(
        r.key for r in l4_virtual_services(db, scope.namespace, hosts) if any(matches(h, hostname) for h in r.hosts)
    )


def can_meet(match: L4MatchAttributes | TLSMatchAttributes, client: L4Client, port: int) -> bool:
    """Returns whether a connection of the client to the port can meet the condition at all."""
    return (
        (not match.gateways or MESH in match.gateways)
        and match.port in (0, port)
        and match.source_namespace in ("", client.namespace)
        and match.source_labels.items() <= client.labels
    )


def find_tls_chains(
    services: Iterable[tuple[ObjectKey, VirtualService]], client: L4Client, port: int, cidrs: tuple[str, ...]
) -> Iterable[L4Chain]:
    """Returns the chains of TLS rules; of those with the same condition the first. A condition that names no subnets is for those that
    were named last before it, in whichever rule, as users of Istio have it; before any it is for the service's own networks."""
    met = [
        (key, rule.route, match)
        for key, spec in services
        for rule in spec.tls
        if rule.route
        for match in rule.match
        if can_meet(match, client, port)
    ]
    named = accumulate(
        (match.destination_subnets if port else () for *_, match in met), lambda last, own: own or last, initial=cidrs
    )
    chains: dict[tuple[tuple[str, ...], tuple[str, ...]], L4Chain] = {}
    for (key, route, match), networks in zip(met, islice(named, 1, None), strict=True):
        chains.setdefault((match.sni_hosts, match.destination_subnets), L4Chain(key, route, match.sni_hosts, networks))
    return chains.values()


def find_tcp_chains(
    services: Iterable[tuple[ObjectKey, VirtualService]], client: L4Client, port: int, cidrs: tuple[str, ...]
) -> Iterator[L4Chain]:
    """Yields the chains of TCP rules, up to the first that takes every connection."""
    for key, spec in services:
        for rule in spec.tcp:
            if not rule.route:
                continue
            chain = _tcp_chain(key, rule, client, port, cidrs)
            if chain is not None:
                yield chain
                if chain.terminal and chain.named:
                    return


def _tcp_chain(key: ObjectKey, rule: TCPRoute, client: L4Client, port: int, cidrs: tuple[str, ...]) -> L4Chain | None:
    """Returns the chain of a rule: a condition without subnets takes all; of others the subnets are collected. Where these are just the
    service's own networks, its default chain would repeat the condition, and None is returned."""
    met = [match for match in rule.match if can_meet(match, client, port)]
    if not rule.match or any(not port or not match.destination_subnets for match in met):
        return L4Chain(key, rule.route, cidrs=cidrs, terminal=True)
    subnets = tuple(subnet for match in met for subnet in match.destination_subnets)
    if not subnets:
        return None
    return L4Chain(key, rule.route, cidrs=subnets, named=False, terminal=sorted(subnets) == sorted(cidrs))
