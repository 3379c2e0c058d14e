"""Derives which virtual hosts a route configuration has: the services of a port, by namespace, and hosts that only VirtualServices know.

A layout is shared by all proxies that see the same; what differs between them (short names, sources, hashing) is put in when a
segment is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.derive import derived, hub
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationService, find_destination_service
from pilot.envoy.route.sidecar.domains import (
    NAMESPACE_MARK,
    DomainClaim,
    Domains,
    kubernetes_namespace,
    resolve_conflicts,
)
from pilot.envoy.route.sidecar.segment import HostKey, SegmentKey, host_domains, segment_domains, segment_hosts
from pilot.envoy.route.sticky_session import find_sticky_session
from pilot.lib.hosts import is_wildcard, matches
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.registry.aliases import external_names
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey
from pilot.mesh.traffic.virtual_services import Binding, ViewerKey, egress_bindings

DEFAULT_PORT = 80


class RouteLayoutKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what a route configuration shows. `refs`: services in sight that have the port, by age. `port`: 0 for all ports, which then
    are told apart by Host headers.

    `dns_domain`: of clients of no namespace in particular, as far as that can be told from the proxy's.
    """

    refs: tuple[ServiceRef, ...]
    port: int
    viewer: ViewerKey
    dns_domain: str
    families: AddressFamiliesFacet


class RouteLayout(NamedTuple):
    """Holds the virtual hosts of a route configuration. `dropped`: domains that a host does not get because another one has them, by host
    and port.

    `destinations`: services in sight of which routes to them must know more than the name. `dotless`: host names that may look like the
    short name of another service.
    """

    segments: tuple[SegmentKey, ...]
    by_hostname: Mapping[str, SegmentKey]
    others: tuple[HostKey, ...]
    dropped: Mapping[tuple[str, int], tuple[str, ...]]
    destinations: Mapping[str, DestinationService]
    dotless: frozenset[str]


@derived
def refs_by_port(db: Mesh, imports: tuple[ImportKey, ...]) -> Mapping[int, tuple[ServiceRef, ...]]:
    """Returns the services that have a port, by age; under 0 all of them."""
    found: dict[int, list[ServiceRef]] = {0: []}
    for item in imports:
        seen = service(db, item.ref)
        if seen is not None:
            for number in (0, *dict.fromkeys(p.number for p in item.visible_ports(seen))):
                found.setdefault(number, []).append(item.ref)
    return {number: tuple(refs) for number, refs in found.items()}


@derived
def route_layout(db: Mesh, key: RouteLayoutKey) -> RouteLayout:
    """Returns the virtual hosts of a route configuration."""
    by_namespace: dict[str, list[ServiceRef]] = {}
    for ref in key.refs:
        by_namespace.setdefault(ref.namespace, []).append(ref)
    segments = tuple(SegmentKey(tuple(refs), key.port, key.viewer) for refs in by_namespace.values())
    bindings = egress_bindings(db, key.viewer.namespace, key.viewer.hosts)
    hosts = [host for segment in segments for host in segment_hosts(db, segment)]
    others = _other_hosts(db, key, bindings, hosts)
    return RouteLayout(
        segments=segments,
        by_hostname={ref.hostname: segment for segment in segments for ref in segment.refs},
        others=others,
        dropped=_dropped(db, key, segments, bindings, hosts, others),
        destinations=_destinations(db, key),
        dotless=frozenset(ref.hostname.lower() for ref in key.refs if "." not in ref.hostname),
    )


# -- hosts of VirtualServices that are no services in sight ----------------------------------------


def _other_hosts(
    db: Mesh, key: RouteLayoutKey, bindings: tuple[Binding, ...], hosts: list[HostKey]
) -> tuple[HostKey, ...]:
    """Returns the hosts that no service has. They are on the ports of the services that the same VirtualService routes; without any such
    service on port 80."""
    services: dict[str, list[int]] = {ref.hostname.lower(): [] for ref in key.refs}
    by_rule: dict[ObjectKey, set[int]] = {}
    for host in hosts:
        services[host.host].append(host.port)
        for rule in host.rules:
            by_rule.setdefault(rule, set()).add(host.port)
    found: dict[tuple[str, int], list[ObjectKey]] = {}
    for bound in bindings:
        unknown = () if bound.by_route else _unknown(bound.hosts, services)
        if not unknown or route_dependencies(db, bound.key) is None:
            continue
        exact = [
            h.lower() for h in bound.hosts if not is_wildcard(h)
        ]  # a wildcard is one VirtualService's alone: `by_rule` has it
        ports = by_rule.get(bound.key, set()).union(*(services.get(h, ()) for h in exact))
        for port in sorted(ports) or ((DEFAULT_PORT,) if key.port == DEFAULT_PORT else ()):
            for name in unknown:
                found.setdefault((name, port), []).append(bound.key)
    return tuple(HostKey(name, port, None, _tried(db, rules)) for (name, port), rules in found.items())


def _unknown(hosts: Iterable[str], services: Mapping[str, list[int]]) -> list[str]:
    """Returns the hosts that no service has, exact ones first. A wildcard that overlaps with any service stands for that."""
    names = [h.lower() for h in hosts]
    exact = [h for h in names if not is_wildcard(h) and h not in services]
    return exact + [h for h in names if is_wildcard(h) and not any(matches(s, h) for s in services)]


def _tried(db: Mesh, rules: list[ObjectKey]) -> tuple[ObjectKey, ...]:
    out: list[ObjectKey] = []
    for rule in dict.fromkeys(rules):
        out.append(rule)
        asks = route_dependencies(db, rule)
        if asks is not None and not asks.conditional:
            break
    return tuple(out)


# -- domains that several hosts want ---------------------------------------------------------------


def _dropped(
    db: Mesh,
    key: RouteLayoutKey,
    segments: tuple[SegmentKey, ...],
    bindings: tuple[Binding, ...],
    hosts: list[HostKey],
    others: tuple[HostKey, ...],
) -> Mapping[tuple[str, int], tuple[str, ...]]:
    contested = _contested(db, key, segments, others)
    if not contested and key.port:
        return {}
    places = {bound.key: i for i, bound in enumerate(bindings)}
    ages = {ref: i for i, ref in enumerate(key.refs)}
    ordered = sorted((*others, *hosts), key=lambda host: _place(host, places, ages))
    contenders = [DomainClaim((h.host, h.port), h.ref is not None, _wanted(db, h, key)) for h in ordered]
    return resolve_conflicts(contenders, contested if key.port else None)


def _wanted(db: Mesh, host: HostKey, key: RouteLayoutKey) -> Domains:
    """Returns the domains that a host would have. Its short names are kept from other hosts of the same namespace alone: they are marked with it."""
    names, short = host_domains(db, host, key.dns_domain, key.families, key.port)
    if key.port:
        for namespace in dict.fromkeys(kubernetes_namespace(n) for n in (host.host, *host.aliases)):
            near = host_domains(db, host, namespace + key.dns_domain, key.families, key.port).names if namespace else ()
            names += tuple(f"{name}{NAMESPACE_MARK}{namespace}" for name in near if name not in names)
    return Domains(names, short)


def _contested(
    db: Mesh, key: RouteLayoutKey, segments: tuple[SegmentKey, ...], others: tuple[HostKey, ...]
) -> frozenset[str]:
    """Returns the domains that more than one host would have."""
    seen = {host.host for host in others}
    contested: set[str] = set()
    for segment in segments:
        found = segment_domains(db, segment, key.dns_domain, key.families)
        contested |= found.repeated
        contested |= seen & found.domains
        seen |= found.domains
    return frozenset(contested)


def _place(
    host: HostKey, places: Mapping[ObjectKey, int], ages: Mapping[ServiceRef, int]
) -> tuple[int, bool, int, bool, int]:
    """Returns what hosts are sorted by: those with a VirtualService come before those without, in the order of these, and in that port 80
    before others; the ports of a service without one are in its own order."""
    age = ages[host.ref] if host.ref is not None else 0
    if not host.rules:
        return len(places), True, age, False, 0
    return places.get(host.rules[0], 0), host.ref is not None, age, host.port != DEFAULT_PORT, host.port


# -- services that routes must know more of --------------------------------------------------------


@hub
def _peculiar(db: Mesh) -> frozenset[str]:
    """Returns the host names of services that routes to them treat in a special way: aliases, and those with sticky sessions."""
    refs: Iterable[ServiceRef] = ()
    if db.settings.listeners.persistent_sessions:
        refs = (r for r in service_refs(db) if (s := service(db, r)) is not None and find_sticky_session(s) is not None)
    return frozenset(r.hostname for r in (*external_names(db), *refs))


def _destinations(db: Mesh, key: RouteLayoutKey) -> Mapping[str, DestinationService]:
    """Returns the services that routes to them must know: where all ports are served, each, for its port may have to be inferred."""
    peculiar = _peculiar(db)
    if key.port and not peculiar:
        return {}
    return {
        ref.hostname: find_destination_service(db, ref, key.port)
        for ref in key.refs
        if not key.port or ref.hostname in peculiar
    }
