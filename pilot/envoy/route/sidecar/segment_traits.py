"""Cuts what virtual hosts need to know of a sidecar down to what they ask for, so that sidecars that agree in it share them."""

from __future__ import annotations

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

Dropped = tuple[tuple[tuple[str, int], tuple[str, ...]], ...]


class SegmentTraitsKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Holds the fields of `VirtualHostKey`, for all hosts of a segment; `dropped` by host and port."""

    dns_domain: str
    families: AddressFamiliesFacet
    namespace: str
    labels: Labels
    destinations: tuple[tuple[str, DestinationService], ...]
    hashes: tuple[tuple[DestinationKey, ConsistentHashLB], ...]
    dropped: Dropped
    attempt_count: bool
    forwarded_host: bool


def segment_traits(
    db: Mesh, segment: SegmentKey, layout: RouteLayout, routing: SidecarRoutesFacet, plain: dict[str, SegmentTraitsKey]
) -> SegmentTraitsKey:
    """Returns what a segment needs. `plain`: traits by DNS domain, for segments that ask for nothing else; it is added to."""
    needs = segment_dependencies(db, segment)
    domain = segment_dns_domain(routing.dns_domain, needs) if segment.port else routing.dns_domain
    dropped: Dropped = ()
    if layout.dropped or (layout.dotless and domain == routing.dns_domain):
        dropped = _dropped(segment_hosts(db, segment), layout, domain)
    if dropped or layout.destinations or not needs.asks.plain:
        return build_segment_traits(db, needs.asks, domain, dropped, layout, routing)
    traits = plain.get(domain)
    if traits is None:
        traits = plain[domain] = build_segment_traits(db, needs.asks, domain, (), layout, routing)
    return traits


def build_segment_traits(
    db: Mesh, asks: RouteDependencies, domain: str, dropped: Dropped, layout: RouteLayout, routing: SidecarRoutesFacet
) -> SegmentTraitsKey:
    namespace, labels = asks.source(routing.scope.namespace, routing.labels)
    known = layout.destinations
    settled = ((key, _hashing(db, key, routing)) for key in asks.hashed)
    return SegmentTraitsKey(
        dns_domain=domain,
        families=routing.families,
        namespace=namespace,
        labels=labels,
        destinations=tuple((host, known[host]) for host in sorted(asks.hosts & known.keys())) if known else (),
        hashes=tuple((key, settings) for key, settings in settled if settings is not None),
        dropped=dropped,
        attempt_count=routing.attempt_count,
        forwarded_host=routing.forwarded_host,
    )


def _dropped(hosts: tuple[HostKey, ...], layout: RouteLayout, domain: str) -> Dropped:
    """Returns what the layout says, and short names that are names of other services."""
    found = {(h.host, h.port): layout.dropped.get((h.host, h.port), ()) for h in hosts}
    if layout.dotless:
        found = {
            key: (*names, *(n for n in short_names(key[0], domain) if n in layout.dotless))
            for key, names in found.items()
        }
    return tuple((key, names) for key, names in found.items() if names)


@derived
def _hashing(db: Mesh, key: DestinationKey, routing: SidecarRoutesFacet) -> ConsistentHashLB | None:
    """Returns what the DestinationRule that a proxy follows for a destination says of hashing."""
    item = scope_services(db, routing.scope).get(key.host)
    rule_key = merged_rule_key(db, routing.scope.namespace, item.ref, routing.labels) if item is not None else ()
    found = merged_rule(db, rule_key) if rule_key else None
    return destination_hash(found.spec, key.subset, key.port) if found is not None else None


def virtual_host_key(host: HostKey, asks: RouteDependencies, listener: int, traits: SegmentTraitsKey) -> VirtualHostKey:
    """Returns the key of one host, with the traits as far as it matters to that."""
    namespace, labels = asks.source(traits.namespace, traits.labels)
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
        destinations=tuple(item for item in traits.destinations if item[0] in asks.hosts),
        hashes=tuple(item for item in traits.hashes if item[0] in asks.hashed),
        dropped=next((names for key, names in traits.dropped if key == (host.host, host.port)), ()),
        attempt_count=traits.attempt_count,
        forwarded_host=traits.forwarded_host,
    )
