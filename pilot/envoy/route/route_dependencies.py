"""The properties of a proxy that affect a VirtualService's routes. Proxies with equal properties share routes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import has_consistent_hash
from pilot.config.object import ObjectKey
from pilot.derive import derived, hub
from pilot.envoy.route.route_destination import DestinationKey, destination_key
from pilot.lib.hosts import subset_of
from pilot.mesh.model.facets import Labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.rule_traits import rule_traits

_NO_LABELS: Labels = frozenset()


class RouteDependencies(msgspec.Struct, frozen=True, cache_hash=True):
    """The inputs on which routes depend.

    - `conditional`: there may be no route for some ports or sources.
    - `source_namespace`: whether matches evaluate the namespace of the source.
    - `source_labels`: labels of the source that matches evaluate.
    - `hosts`: hosts of destinations.
    - `hash_candidates`: destinations for which a DestinationRule may configure consistent hashing.
    """

    conditional: bool = False
    source_namespace: bool = False
    source_labels: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    hash_candidates: tuple[DestinationKey, ...] = ()

    @property
    def is_proxy_independent(self) -> bool:
        """Return whether the routes depend on neither the source nor consistent hashing."""
        return not (self.source_namespace or self.source_labels or self.hash_candidates)

    def relevant_source(self, namespace: str, labels: Labels) -> tuple[str, Labels]:
        """Return the source's namespace and labels, reduced to the parts that affect the routes."""
        keys = self.source_labels
        relevant = frozenset(item for item in labels if item[0] in keys) if keys else _NO_LABELS
        return namespace if self.source_namespace else "", relevant


NO_DEPENDENCIES = RouteDependencies()


def merge_dependencies(dependencies: Iterable[RouteDependencies]) -> RouteDependencies:
    """Return the union of the dependencies."""
    items = tuple(dependencies)
    return RouteDependencies(
        any(item.conditional for item in items),
        any(item.source_namespace for item in items),
        frozenset().union(*(item.source_labels for item in items)),
        frozenset().union(*(item.hosts for item in items)),
        tuple(dict.fromkeys(key for item in items for key in item.hash_candidates)),
    )


@derived
def route_dependencies(db: Mesh, key: ObjectKey) -> RouteDependencies | None:
    """Return the dependencies of a VirtualService, or None if it has no HTTP rules."""
    traits = rule_traits(db, key)
    if not traits:
        return None
    destinations = dict.fromkeys([destination_key(to) for rule in traits for to in rule.destinations])
    return RouteDependencies(
        conditional=all(rule.conditional for rule in traits),
        source_namespace=any(rule.source_namespace for rule in traits),
        source_labels=frozenset().union(*(rule.source_labels for rule in traits)),
        hosts=frozenset((*(k.host for k in destinations), *(to.host for rule in traits for to in rule.mirrors))),
        hash_candidates=tuple(k for k in destinations if may_use_consistent_hash(db, k.host)),
    )


# -- hashing ---------------------------------------------------------------------------------------


@hub
def _hashing_wildcards(db: Mesh) -> tuple[str, ...]:
    """Return the wildcard hosts of all DestinationRules with consistent hashing."""
    rows = (DESTINATION_RULE.get(db, key) for key in DESTINATION_RULE.keys(db, "hashing_wildcard", True))
    return tuple(sorted({row.spec.host for row in rows if row is not None}))


@derived
def may_use_consistent_hash(db: Mesh, host: str) -> bool:
    """Return whether a host may use consistent hashing for any client."""
    rows = (DESTINATION_RULE.get(db, key) for key in DESTINATION_RULE.keys(db, "host", host.lower()))
    return any(row is not None and has_consistent_hash(row.spec) for row in rows) or any(
        subset_of(host, w) for w in _hashing_wildcards(db)
    )
