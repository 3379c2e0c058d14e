"""Finds what the rules of a VirtualService ask of whoever they are built for, so that equals share what is built."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import has_consistent_hash
from pilot.config.networking.virtual_service import HTTPMatchRequest, VirtualService
from pilot.config.object import ObjectKey
from pilot.derive import derived, hub
from pilot.envoy.route.route_destination import DestinationKey, destination_key
from pilot.lib.hosts import subset_of
from pilot.mesh.model.facets import Labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import virtual_service


class RouteDependencies(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what rules ask. `conditional`: there may be no route at all, for some port or source. `namespace`, `labels`: what is asked of
    the source.

    `hosts`: those that requests are sent to; `hashed`: destinations that some DestinationRule may ask to hash for.
    """

    conditional: bool = False
    namespace: bool = False
    labels: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    hashed: tuple[DestinationKey, ...] = ()

    @property
    def plain(self) -> bool:
        """Returns whether the routes ask for nothing of the source, and for no hashing."""
        return not (self.namespace or self.labels or self.hashed)

    def source(self, namespace: str, labels: Labels) -> tuple[str, Labels]:
        """Returns a source as far as it is asked for."""
        return namespace if self.namespace else "", frozenset(
            item for item in labels if item[0] in self.labels
        ) if self.labels else frozenset()


def merge_dependencies(many: Iterable[RouteDependencies]) -> RouteDependencies:
    """Returns what all of them ask together."""
    items = tuple(many)
    return RouteDependencies(
        any(a.conditional for a in items),
        any(a.namespace for a in items),
        frozenset().union(*(a.labels for a in items)),
        frozenset().union(*(a.hosts for a in items)),
        tuple(dict.fromkeys(key for a in items for key in a.hashed)),
    )


@derived
def route_dependencies(db: Mesh, key: ObjectKey) -> RouteDependencies | None:
    """Returns what a VirtualService asks; None where it has no HTTP rules."""
    found = virtual_service(db, key)
    if found is None or not found.spec.http:
        return None
    matches = [m for rule in found.spec.http for m in rule.match]
    return RouteDependencies(
        conditional=all(rule.match and all(_is_conditional(m) for m in rule.match) for rule in found.spec.http),
        namespace=any(m.source_namespace for m in matches),
        labels=frozenset(k for m in matches for k in m.source_labels),
        hosts=frozenset(_hosts(found.spec)),
        hashed=tuple(k for k in dict.fromkeys(_destinations(found.spec)) if may_use_consistent_hash(db, k.host)),
    )


def _is_conditional(match: HTTPMatchRequest) -> bool:
    return bool(match.port or match.gateways or match.source_labels or match.source_namespace)


def _destinations(spec: VirtualService) -> Iterable[DestinationKey]:
    return (destination_key(d.destination) for rule in spec.http for d in rule.route if d.destination is not None)


def _hosts(spec: VirtualService) -> Iterable[str]:
    for rule in spec.http:
        leads = (*(d.destination for d in rule.route), rule.mirror, *(m.destination for m in rule.mirrors))
        yield from (d.host for d in leads if d is not None)


# -- hashing ---------------------------------------------------------------------------------------


@hub
def _hashing_wildcards(db: Mesh) -> tuple[str, ...]:
    """Returns the wildcard hosts for which any DestinationRule of the mesh asks for consistent hashing."""
    rows = (DESTINATION_RULE.get(db, key) for key in DESTINATION_RULE.keys(db, "hashing_wildcard", True))
    return tuple(sorted({row.spec.host for row in rows if row is not None}))


def may_use_consistent_hash(db: Mesh, host: str) -> bool:
    """Returns whether there may be consistent hashing for a host, for any client."""
    rows = (DESTINATION_RULE.get(db, key) for key in DESTINATION_RULE.keys(db, "host", host.lower()))
    return any(row is not None and has_consistent_hash(row.spec) for row in rows) or any(
        subset_of(host, w) for w in _hashing_wildcards(db)
    )
