"""Derives the layout of a route configuration: the services on a port, grouped by namespace, and hosts without a
service.

Proxies with an equal `RouteLayoutKey` share a layout. Differences between these proxies (short names, sources, hashing)
are applied when segments are built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.derive import Steps, derived_in_steps, hub
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationService, find_destination_service
from pilot.envoy.route.sidecar.domains import (
    DEFAULT_PORT,
    NAMESPACE_MARK,
    DomainClaim,
    Domains,
    kubernetes_namespace,
    resolve_conflicts,
)
from pilot.envoy.route.sidecar.segment import HostKey, SegmentKey, host_domains, segment_domains, segment_hosts
from pilot.envoy.route.sticky_session import find_sticky_session
from pilot.lib.hosts import OverlappingHosts, is_wildcard
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.registry.aliases import external_names
from pilot.mesh.registry.services import STEP, service, service_refs
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.excess_hosts import excess_hosts
from pilot.mesh.traffic.imports import ImportKey
from pilot.mesh.traffic.virtual_services import Binding, ViewerKey, egress_bindings


class RouteLayoutKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a proxy that determine the layout of a route configuration.

    `refs` are the visible services that have the port, in order of precedence. `port` is 0 for all ports, which are
    then distinguished by the Host header. `dns_domain` omits the client's namespace if possible.
    """

    refs: tuple[ServiceRef, ...]
    port: int
    viewer: ViewerKey
    dns_domain: str
    families: AddressFamiliesFacet


class RouteLayout(NamedTuple):
    """The virtual hosts of a route configuration.

    - `segment_numbers`: position in `segments` of each host name.
    - `virtual_service_hosts`: hosts that only VirtualServices declare.
    - `dropped_domains`: domains that a host loses to another host, keyed by host and port.
    - `destinations`: visible services with properties that routes depend on, keyed by host name.
    - `dotless_hostnames`: host names that may equal the short name of another service.
    """

    segments: tuple[SegmentKey, ...]
    segment_numbers: Mapping[str, int]
    virtual_service_hosts: tuple[HostKey, ...]
    dropped_domains: Mapping[tuple[str, int], tuple[str, ...]]
    destinations: Mapping[str, DestinationService]
    dotless_hostnames: frozenset[str]


@derived_in_steps
def refs_by_port(db: Mesh, imports: tuple[ImportKey, ...]) -> Steps[Mapping[int, tuple[ServiceRef, ...]]]:
    """Return a mapping from port to the services that have it, in the order of `imports`. Key 0 has all services."""
    by_port: dict[int, list[ServiceRef]] = {0: []}
    for item in imports:
        yield service.step(item.ref)
        row = service(db, item.ref)
        if row is not None:
            for number in (0, *dict.fromkeys(p.number for p in item.visible_ports(row))):
                by_port.setdefault(number, []).append(item.ref)
    return {number: tuple(refs) for number, refs in by_port.items()}


@derived_in_steps
def route_layout(db: Mesh, key: RouteLayoutKey) -> Steps[RouteLayout]:
    """Return the layout of a route configuration."""
    by_namespace: dict[str, list[ServiceRef]] = {}
    for ref in key.refs:
        by_namespace.setdefault(ref.namespace, []).append(ref)
    yield None
    segments = tuple(SegmentKey(tuple(refs), key.port, key.viewer) for refs in by_namespace.values())
    bindings = egress_bindings(db, key.viewer.namespace, key.viewer.hosts)
    hosts: list[HostKey] = []
    for segment in segments:
        yield segment_hosts.step(segment)
        hosts += segment_hosts(db, segment)
        yield segment_domains.step(segment, key.dns_domain, key.families)
    virtual_service_hosts = yield from _virtual_service_hosts(db, key, bindings, hosts)
    dropped_domains = yield from _dropped_domains(db, key, segments, bindings, hosts, virtual_service_hosts)
    segment_numbers: dict[str, int] = {}
    for number, segment in enumerate(segments):
        segment_numbers |= dict.fromkeys(map(attrgetter("hostname"), segment.refs), number)
        yield None
    return RouteLayout(
        segments=segments,
        segment_numbers=segment_numbers,
        virtual_service_hosts=virtual_service_hosts,
        dropped_domains=dropped_domains,
        destinations=(yield from _destinations(db, key)),
        dotless_hostnames=frozenset(ref.hostname.lower() for ref in key.refs if "." not in ref.hostname),
    )


# -- hosts without a service ------------------------------------------------------------------------


def _virtual_service_hosts(
    db: Mesh, key: RouteLayoutKey, bindings: tuple[Binding, ...], hosts: list[HostKey]
) -> Steps[tuple[HostKey, ...]]:
    """Return the virtual hosts that do not belong to a service.

    Each has the ports of the services that its VirtualService routes, or port 80 if there are no such services.
    """
    if not bindings:
        return ()
    services: dict[str, tuple[int, ...]] = {}
    for number, ref in enumerate(key.refs, 1):
        services[ref.hostname.lower()] = ()
        if number % STEP == 0:
            yield None
    by_rule: dict[ObjectKey, set[int]] = {}
    for number, host in enumerate(hosts, 1):
        if number % STEP == 0:
            yield None
        services[host.host] += (host.port,)
        for rule in host.rules:
            by_rule.setdefault(rule, set()).add(host.port)
    rules_by_host: dict[tuple[str, int], list[ObjectKey]] = {}
    has_wildcards = any(is_wildcard(host) for binding in bindings for host in binding.hosts)
    overlapping = OverlappingHosts(services if has_wildcards else ())
    for binding in bindings:
        yield None
        unknown_hosts = () if binding.by_route else _hosts_without_service(binding.hosts, services, overlapping)
        if not unknown_hosts or binding.key in excess_hosts(db, binding.key.namespace):
            continue
        if route_dependencies(db, binding.key) is None:
            continue
        # `by_rule` has the ports of wildcard hosts.
        exact = [h.lower() for h in binding.hosts if not is_wildcard(h)]

        ports = by_rule.get(binding.key, set()).union(*(services.get(h, ()) for h in exact))
        for port in sorted(ports) or ((DEFAULT_PORT,) if key.port == DEFAULT_PORT else ()):
            for name in unknown_hosts:
                rules_by_host.setdefault((name, port), []).append(binding.key)
    virtual_service_hosts: list[HostKey] = []
    for (name, port), rules in rules_by_host.items():
        yield None
        virtual_service_hosts.append(HostKey(name, port, None, _candidate_rules(db, rules)))
    return tuple(virtual_service_hosts)


def _hosts_without_service(
    hosts: Iterable[str], services: Mapping[str, tuple[int, ...]], overlapping: OverlappingHosts
) -> list[str]:
    """Return the hosts that do not belong to a service, exact hosts first. A wildcard that matches any service is
    omitted."""
    names = [h.lower() for h in hosts]
    exact = [h for h in names if not is_wildcard(h) and h not in services]
    return exact + [h for h in names if is_wildcard(h) and not overlapping.overlap(h)]


def _candidate_rules(db: Mesh, rules: list[ObjectKey]) -> tuple[ObjectKey, ...]:
    out: list[ObjectKey] = []
    for rule in dict.fromkeys(rules):
        out.append(rule)
        dependencies = route_dependencies(db, rule)
        if dependencies is not None and not dependencies.conditional:
            break
    return tuple(out)


# -- conflicting domains ----------------------------------------------------------------------------


def _dropped_domains(
    db: Mesh,
    key: RouteLayoutKey,
    segments: tuple[SegmentKey, ...],
    bindings: tuple[Binding, ...],
    hosts: list[HostKey],
    virtual_service_hosts: tuple[HostKey, ...],
) -> Steps[Mapping[tuple[str, int], tuple[str, ...]]]:
    contested = yield from _contested(db, key, segments, virtual_service_hosts)
    if not contested and key.port:
        return {}
    places = {binding.key: i for i, binding in enumerate(bindings)}
    ages = {ref: i for i, ref in enumerate(key.refs)}
    ordered = sorted((*virtual_service_hosts, *hosts), key=lambda host: _sort_key(host, places, ages))
    claims: list[DomainClaim] = []
    for h in ordered:
        yield None
        claims.append(DomainClaim((h.host, h.port), h.ref is not None, _claimed_domains(db, h, key)))
    yield None
    return resolve_conflicts(claims, contested if key.port else None)


def _claimed_domains(db: Mesh, host: HostKey, key: RouteLayoutKey) -> Domains:
    """Return the domains that a host claims.

    Its short names are marked with its namespace, because they conflict only with hosts in the same namespace.
    """
    names, short = host_domains(db, host, key.dns_domain, key.families, key.port)
    if key.port:
        for namespace in dict.fromkeys(kubernetes_namespace(n) for n in (host.host, *host.aliases)):
            short_forms = (
                host_domains(db, host, namespace + key.dns_domain, key.families, key.port).names if namespace else ()
            )
            names += tuple(f"{name}{NAMESPACE_MARK}{namespace}" for name in short_forms if name not in names)
    return Domains(names, short)


def _contested(
    db: Mesh, key: RouteLayoutKey, segments: tuple[SegmentKey, ...], virtual_service_hosts: tuple[HostKey, ...]
) -> Steps[frozenset[str]]:
    """Return the domains that more than one host claims."""
    claimed_domains = {host.host for host in virtual_service_hosts}
    contested: set[str] = set()
    for number, segment in enumerate(segments, 1):
        yield None
        domains = segment_domains(db, segment, key.dns_domain, key.families)
        contested |= domains.repeated
        contested |= claimed_domains & domains.domains
        if number < len(segments):
            claimed_domains |= domains.domains
    yield None
    return frozenset(contested)


def _sort_key(
    host: HostKey, places: Mapping[ObjectKey, int], ages: Mapping[ServiceRef, int]
) -> tuple[int, bool, int, bool, int]:
    """Return the sort key of a host.

    Hosts with a VirtualService come first, in the order of the VirtualServices. Among the ports of such a service, port
    80 comes first. The ports of a service without a VirtualService keep their order.
    """
    age = ages[host.ref] if host.ref is not None else 0
    if not host.rules:
        return len(places), True, age, False, 0
    return places.get(host.rules[0], 0), host.ref is not None, age, host.port != DEFAULT_PORT, host.port


# -- destinations -----------------------------------------------------------------------------------


@hub
def _special_hostnames(db: Mesh) -> frozenset[str]:
    """Return the host names of services with properties that routes depend on.

    These are ExternalName aliases and services with sticky sessions.
    """
    refs: Iterable[ServiceRef] = ()
    if db.settings.listeners.persistent_sessions:
        refs = (r for r in service_refs(db) if (s := service(db, r)) is not None and find_sticky_session(s) is not None)
    return frozenset(r.hostname for r in (*external_names(db), *refs))


def _destinations(db: Mesh, key: RouteLayoutKey) -> Steps[Mapping[str, DestinationService]]:
    """Return the services with properties that routes depend on, keyed by host name.

    On a listener for all ports, these are all services, because the destination's port may have to be inferred.
    """
    special = _special_hostnames(db)
    if key.port and not special:
        return {}
    destinations: dict[str, DestinationService] = {}
    for ref in key.refs:
        if not key.port or ref.hostname in special:
            yield service.step(ref)
            destinations[ref.hostname] = find_destination_service(db, ref, key.port)
    return destinations
