"""TCP and TLS rules of VirtualServices, and the filter chains for these rules on a port of a service.

Conditions that are known in advance are evaluated here: gateways, the proxy's labels and namespace, and the port.
Conditions on the connection, which are its destination and SNI, become the match of a chain.
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


class L4VirtualService(NamedTuple):
    """A VirtualService with TCP or TLS rules."""

    key: ObjectKey
    hosts: tuple[str, ...]


class L4Chain(NamedTuple):
    """The filter chain for a TCP or TLS rule of a VirtualService.

    `records_source` is set if the chain's metadata identifies the VirtualService. `terminal` is set if the chain
    matches all connections to the service.
    """

    key: ObjectKey
    route: tuple[RouteDestination, ...]
    sni: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()
    records_source: bool = True
    terminal: bool = False


class L4Client(NamedTuple):
    """The namespace and labels of the proxy that connects."""

    namespace: str
    labels: Labels


@derived
def _l4_virtual_service(db: Mesh, key: ObjectKey, _: str) -> L4VirtualService | None:
    row = virtual_service(db, key)
    return L4VirtualService(key, row.spec.hosts) if row is not None and (row.spec.tcp or row.spec.tls) else None


_l4_in_namespace: Gather[ObjectKey, [str], L4VirtualService] = Gather(
    "l4_virtual_services", virtual_service_keys, _l4_virtual_service
)


@hub
def l4_virtual_services(db: Mesh, namespace: str, hosts: EgressHostsKey | None) -> tuple[L4VirtualService, ...]:
    """Return the VirtualServices that have TCP or TLS rules and that an egress listener imports.

    They are ordered by precedence.
    """
    keys = [b.key for b in egress_bindings(db, namespace, hosts)]
    by_namespace = {name: _l4_in_namespace(db, name) for name in {k.namespace for k in keys}}
    return tuple(service for k in keys if (service := by_namespace[k.namespace].get(k)) is not None)


@derived
def l4_keys(db: Mesh, scope: ScopeFacet, index: int, hostname: str) -> tuple[ObjectKey, ...]:
    """Return the VirtualServices that apply to a service and that an egress listener imports.

    `index` is the index of the egress listener. At least one host of each VirtualService matches `hostname`.
    """
    hosts = egress_listeners(db, scope)[index].hosts
    return tuple(
        service.key
        for service in l4_virtual_services(db, scope.namespace, hosts)
        if any(matches(h, hostname) for h in service.hosts)
    )


def can_match(match: L4MatchAttributes | TLSMatchAttributes, client: L4Client, port: int) -> bool:
    """Return whether any connection from the client to the port can meet the condition."""
    return (
        (not match.gateways or MESH in match.gateways)
        and match.port in (0, port)
        and match.source_namespace in ("", client.namespace)
        and match.source_labels.items() <= client.labels
    )


def find_tls_chains(
    services: Iterable[tuple[ObjectKey, VirtualService]], client: L4Client, port: int, cidrs: tuple[str, ...]
) -> Iterable[L4Chain]:
    """Return the chains of TLS rules. If two conditions are equal, the first takes precedence.

    A condition without subnets uses the subnets of the nearest preceding condition that has any, even if it belongs to
    another rule. Istio does the same. If no preceding condition has subnets, the service's own networks are used.
    """
    conditions = [
        (key, rule.route, match)
        for key, spec in services
        for rule in spec.tls
        if rule.route
        for match in rule.match
        if can_match(match, client, port)
    ]
    subnets = accumulate(
        (match.destination_subnets if port else () for *_, match in conditions),
        lambda last, current: current or last,
        initial=cidrs,
    )
    chains: dict[tuple[tuple[str, ...], tuple[str, ...]], L4Chain] = {}
    for (key, route, match), networks in zip(conditions, islice(subnets, 1, None), strict=True):
        chains.setdefault((match.sni_hosts, match.destination_subnets), L4Chain(key, route, match.sni_hosts, networks))
    return chains.values()


def find_tcp_chains(
    services: Iterable[tuple[ObjectKey, VirtualService]], client: L4Client, port: int, cidrs: tuple[str, ...]
) -> Iterator[L4Chain]:
    """Yield the chains of TCP rules, up to the first one that matches every connection."""
    for key, spec in services:
        for rule in spec.tcp:
            if not rule.route:
                continue
            chain = _tcp_chain(key, rule, client, port, cidrs)
            if chain is not None:
                yield chain
                if chain.terminal and chain.records_source:
                    return


def _tcp_chain(key: ObjectKey, rule: TCPRoute, client: L4Client, port: int, cidrs: tuple[str, ...]) -> L4Chain | None:
    """Return the chain of a rule, or None if no connection can meet any of its conditions.

    The chain matches the subnets of all conditions. If a condition has no subnets, the chain matches the service's own
    networks.
    """
    conditions = [match for match in rule.match if can_match(match, client, port)]
    if not rule.match or any(not port or not match.destination_subnets for match in conditions):
        return L4Chain(key, rule.route, cidrs=cidrs, terminal=True)
    subnets = tuple(subnet for match in conditions for subnet in match.destination_subnets)
    if not subnets:
        return None
    return L4Chain(key, rule.route, cidrs=subnets, records_source=False, terminal=sorted(subnets) == sorted(cidrs))
