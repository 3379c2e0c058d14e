"""Reduces the properties of a sidecar to those that affect a segment, so that more sidecars share virtual hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.derive import derived
from pilot.envoy.route.route_dependencies import RouteDependencies
from pilot.envoy.route.route_destination import DestinationKey, DestinationService
from pilot.envoy.route.sidecar.domains import relevant_dns_domain, short_names
from pilot.envoy.route.sidecar.route_layout import RouteLayout
from pilot.envoy.route.sidecar.segment import (
    HostKey,
    SegmentKey,
    segment_dependencies,
    segment_dns_domain,
    segment_hosts,
)
from pilot.envoy.route.sidecar.sidecar_virtual_host import VirtualHostKey
from pilot.mesh.model.facets import Labels
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.proxies.sidecar_routing import SidecarRoutesFacet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import merged_rule, merged_rule_key
from pilot.mesh.traffic.imports import scope_services

DroppedDomains = tuple[tuple[tuple[str, int], tuple[str, ...]], ...]


class SegmentTraitsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The properties of a sidecar that affect a segment, as in `VirtualHostKey`. `dropped_domains` is keyed by host and
    port."""

    dns_domain: str
    families: AddressFamiliesFacet
    namespace: str
    labels: Labels
    destinations: tuple[tuple[str, DestinationService], ...]
    consistent_hashes: tuple[tuple[DestinationKey, ConsistentHashLB], ...]
    dropped_domains: DroppedDomains
    attempt_count: bool
    forwarded_host: bool


def segment_traits(
    db: Mesh,
    segment: SegmentKey,
    layout: RouteLayout,
    routing: SidecarRoutesFacet,
    shared_traits: dict[str, SegmentTraitsKey],
) -> SegmentTraitsKey:
    """Return the properties of a sidecar that affect a segment.

    `shared_traits` caches the results for segments that depend only on the DNS domain, keyed by that domain.
    """
    dependencies = segment_dependencies(db, segment)
    domain = segment_dns_domain(routing.dns_domain, dependencies) if segment.port else routing.dns_domain
    dropped_domains: DroppedDomains = ()
    if layout.dropped_domains or (layout.dotless_hostnames and domain == routing.dns_domain):
        dropped_domains = _dropped_domains(segment_hosts(db, segment), layout, domain)
    if dropped_domains or layout.destinations or not dependencies.routes.is_proxy_independent:
        return build_segment_traits(db, dependencies.routes, domain, dropped_domains, layout, routing)
    traits = shared_traits.get(domain)
    if traits is None:
        traits = shared_traits[domain] = build_segment_traits(db, dependencies.routes, domain, (), layout, routing)
    return traits


def build_segment_traits(
    db: Mesh,
    dependencies: RouteDependencies,
    domain: str,
    dropped_domains: DroppedDomains,
    layout: RouteLayout,
    routing: SidecarRoutesFacet,
) -> SegmentTraitsKey:
    """Return the properties of a sidecar that affect routes with these dependencies."""
    namespace, labels = dependencies.relevant_source(routing.scope.namespace, routing.labels)
    services = layout.destinations
    settings_by_destination = ((key, _consistent_hash(db, key, routing)) for key in dependencies.hash_candidates)
    return SegmentTraitsKey(
        dns_domain=domain,
        families=routing.families,
        namespace=namespace,
        labels=labels,
        destinations=tuple((host, services[host]) for host in sorted(dependencies.hosts & services.keys()))
        if services
        else (),
        consistent_hashes=tuple((key, settings) for key, settings in settings_by_destination if settings is not None),
        dropped_domains=dropped_domains,
        attempt_count=routing.attempt_count,
        forwarded_host=routing.forwarded_host,
    )


def _dropped_domains(hosts: tuple[HostKey, ...], layout: RouteLayout, domain: str) -> DroppedDomains:
    """Return the dropped domains of the layout, and the short names that equal the names of other services."""
    dropped = {(h.host, h.port): layout.dropped_domains.get((h.host, h.port), ()) for h in hosts}
    if layout.dotless_hostnames:
        dropped = {
            key: (*names, *(n for n in short_names(key[0], domain) if n in layout.dotless_hostnames))
            for key, names in dropped.items()
        }
    return tuple((key, names) for key, names in dropped.items() if names)


@derived
def _consistent_hash(db: Mesh, key: DestinationKey, routing: SidecarRoutesFacet) -> ConsistentHashLB | None:
    """Return the hash settings of the DestinationRule that a proxy applies to a destination."""
    item = scope_services(db, routing.scope).get(key.host)
    rule_key = merged_rule_key(db, routing.scope.namespace, item.ref, routing.labels) if item is not None else ()
    row = merged_rule(db, rule_key) if rule_key else None
    return destination_hash(row.spec, key.subset, key.port) if row is not None else None


class SegmentTraits(NamedTuple):
    """The properties of a sidecar that affect a segment, and those that affect single hosts of it, by their keys."""

    key: SegmentTraitsKey
    destinations: Mapping[str, DestinationService]
    consistent_hashes: Mapping[DestinationKey, ConsistentHashLB]
    dropped_domains: Mapping[tuple[str, int], tuple[str, ...]]

    @staticmethod
    def of(key: SegmentTraitsKey) -> SegmentTraits:
        """Return the properties in a key. Create them once for all hosts of a segment."""
        return SegmentTraits(key, dict(key.destinations), dict(key.consistent_hashes), dict(key.dropped_domains))


def virtual_host_key(
    host: HostKey, dependencies: RouteDependencies, listener: int, segment_traits: SegmentTraits
) -> VirtualHostKey:
    """Return the key of one virtual host. It contains only the properties that affect this virtual host."""
    traits, destinations, consistent_hashes, dropped_domains = segment_traits
    namespace, labels = dependencies.relevant_source(traits.namespace, traits.labels)
    names = (host.host, *host.aliases)
    return VirtualHostKey(
        host=host,
        listener=listener,
        dns_domain=next(
            (d for n in names if (d := relevant_dns_domain(traits.dns_domain, n)) == traits.dns_domain),
            relevant_dns_domain(traits.dns_domain, host.host),
        ),
        families=traits.families,
        namespace=namespace,
        labels=labels,
        destinations=tuple((name, destinations[name]) for name in sorted(dependencies.hosts & destinations.keys())),
        consistent_hashes=tuple(
            (key, consistent_hashes[key]) for key in dependencies.hash_candidates if key in consistent_hashes
        ),
        dropped_domains=dropped_domains.get((host.host, host.port), ()),
        attempt_count=traits.attempt_count,
        forwarded_host=traits.forwarded_host,
    )
