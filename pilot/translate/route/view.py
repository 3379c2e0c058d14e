"""Cuts what virtual hosts need to know of a sidecar down to what they ask for, so that sidecars that agree in it share them."""
from __future__ import annotations

import msgspec

from pilot.derive import derived
from pilot.model.config.destination_rule import ConsistentHashLB
from pilot.model.consistent_hash import hash_of_destination
from pilot.model.facets import Labels
from pilot.model.inputs import Mesh
from pilot.model.views.destination_rules import merged_rule, merged_rule_key
from pilot.model.views.imports import scope_services
from pilot.model.views.sidecar_routing import SidecarRoutesFacet
from pilot.model.virtual_addresses import AddressFamiliesFacet
from pilot.translate.route.asks import Asks
from pilot.translate.route.destination import DestinationKey, RouteTarget
from pilot.translate.route.domains import reduced, short_names
from pilot.translate.route.segment import HostKey, SegmentKey, domain_for, segment_hosts, segment_needs
from pilot.translate.route.table import RouteTable
from pilot.translate.route.virtual_host import VirtualHostKey

Dropped = tuple[tuple[tuple[str, int], tuple[str, ...]], ...]


class VirtualHostViewKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Holds the fields of `VirtualHostKey`, for all hosts of a segment; `dropped` by host and port."""

    dns_domain: str
    families: AddressFamiliesFacet
    namespace: str
    labels: Labels
    targets: tuple[tuple[str, RouteTarget], ...]
    hashes: tuple[tuple[DestinationKey, ConsistentHashLB], ...]
    dropped: Dropped
    attempt_count: bool
    forwarded_host: bool


def segment_view(
    db: Mesh, segment: SegmentKey, table: RouteTable, routing: SidecarRoutesFacet, plain: dict[str, VirtualHostViewKey]
) -> VirtualHostViewKey:
    """Returns what a segment needs. `plain`: views by DNS domain, for segments that ask for nothing else; it is added to."""
    needs = segment_needs(db, segment)
    domain = domain_for(routing.dns_domain, needs) if segment.port else routing.dns_domain
    dropped: Dropped = ()
    if table.dropped or (table.dotless and domain == routing.dns_domain):
        dropped = _dropped(segment_hosts(db, segment), table, domain)
    if dropped or table.targets or not needs.asks.plain:
        return build_view(db, needs.asks, domain, dropped, table, routing)
    view = plain.get(domain)
    if view is None:
        view = plain[domain] = build_view(db, needs.asks, domain, (), table, routing)
    return view


def build_view(db: Mesh, asks: Asks, domain: str, dropped: Dropped, table: RouteTable, routing: SidecarRoutesFacet) -> VirtualHostViewKey:
    namespace, labels = asks.source(routing.scope.namespace, routing.labels)
    settled = ((key, _settings(db, key, routing)) for key in asks.hashed)
    return VirtualHostViewKey(
        dns_domain=domain,
        families=routing.families,
        namespace=namespace,
        labels=labels,
        targets=tuple((host, table.targets[host]) for host in sorted(asks.targets & table.targets.keys())) if table.targets else (),
        hashes=tuple((key, settings) for key, settings in settled if settings is not None),
        dropped=dropped,
        attempt_count=routing.attempt_count,
        forwarded_host=routing.forwarded_host,
    )


def _dropped(hosts: tuple[HostKey, ...], table: RouteTable, domain: str) -> Dropped:
    """Returns what the table says, and short names that are names of other services."""
    found = {(h.host, h.port): table.dropped.get((h.host, h.port), ()) for h in hosts}
    if table.dotless:
        found = {key: (*names, *(n for n in short_names(key[0], domain) if n in table.dotless)) for key, names in found.items()}
    return tuple((key, names) for key, names in found.items() if names)


@derived
def _settings(db: Mesh, key: DestinationKey, routing: SidecarRoutesFacet) -> ConsistentHashLB | None:
    """Returns what the DestinationRule that a proxy follows for a destination says of hashing."""
    item = scope_services(db, routing.scope).get(key.host)
    rule_key = merged_rule_key(db, routing.scope.namespace, item.ref, routing.labels) if item is not None else ()
    found = merged_rule(db, rule_key) if rule_key else None
    return hash_of_destination(found.spec, key.subset, key.port) if found is not None else None


def virtual_host_key(host: HostKey, asks: Asks, listener: int, view: VirtualHostViewKey) -> VirtualHostKey:
    """Returns the key of one host, with the view as far as it matters to that."""
    namespace, labels = asks.source(view.namespace, view.labels)
    names = (host.host, *host.aliases)
    return VirtualHostKey(
        host=host,
        listener=listener,
        dns_domain=next((d for n in names if (d := reduced(view.dns_domain, n)) == view.dns_domain), reduced(view.dns_domain, host.host)),
        families=view.families,
        namespace=namespace,
        labels=labels,
        targets=tuple(item for item in view.targets if item[0] in asks.targets),
        hashes=tuple(item for item in view.hashes if item[0] in asks.hashed),
        dropped=next((names for key, names in view.dropped if key == (host.host, host.port)), ()),
        attempt_count=view.attempt_count,
        forwarded_host=view.forwarded_host,
    )
