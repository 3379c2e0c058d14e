"""The traits of the HTTP rules of a VirtualService, on which its routes and checks depend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

import msgspec

from pilot.config.networking.virtual_service import Destination, HTTPMatchRequest, HTTPRoute
from pilot.config.object import ObjectKey
from pilot.config.validation.traffic.headers import is_claim
from pilot.derive import derived, updated
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import virtual_service

T = TypeVar("T")
MANY_RULES = 20
"""Number of rules from which it is worth the memory to keep what is computed from each rule."""


class ByRule(Generic[T]):
    """Values computed from each rule of a VirtualService, by the identity of the rule.

    An edit of one of many HTTPRoutes with the same host changes one rule of their VirtualService, and the objects of
    the others stay.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[HTTPRoute, T]] = {}

    def find(self, rules: tuple[HTTPRoute, ...]) -> list[tuple[HTTPRoute, T] | None]:
        """Return each rule with what has been computed from it, or None."""
        return [*map(self._entries.get, map(id, rules))]

    def set(self, rule: HTTPRoute, computed: T) -> tuple[HTTPRoute, T]:
        """Keep what has been computed from a rule, and return both."""
        entry = self._entries[id(rule)] = rule, computed
        return entry

    def values(self, rules: tuple[HTTPRoute, ...], compute: Callable[[HTTPRoute], T]) -> Iterator[T]:
        """Return what is computed from each rule."""
        entries = self.find(rules)
        if None in entries:
            entries = [entry or self.set(rule, compute(rule)) for rule, entry in zip(rules, entries, strict=True)]
        self.forget_others(rules)
        return map(itemgetter(1), entries)  # type: ignore[arg-type]

    def forget_others(self, rules: tuple[HTTPRoute, ...]) -> None:
        """Forget rules that are no longer in the VirtualService, unless they are few."""
        if len(self._entries) > len(rules) * 1.25:
            ids = set(map(id, rules))
            self._entries = {key: entry for key, entry in self._entries.items() if key in ids}


class RuleTraits(msgspec.Struct, frozen=True, cache_hash=True):
    """The traits of a rule.

    - `conditional`: there may be no route for some ports or sources.
    - `source_namespace`: whether matches evaluate the namespace of the source.
    - `source_labels`: labels of the source that matches evaluate.
    - `has_claims`: whether matches evaluate JWT claims.
    """

    conditional: bool
    source_namespace: bool
    source_labels: frozenset[str]
    has_claims: bool
    destinations: tuple[Destination, ...]
    mirrors: tuple[Destination, ...]


def build_rule_traits(rule: HTTPRoute) -> RuleTraits:
    """Return the traits of a rule."""
    return RuleTraits(
        conditional=bool(rule.match) and all(_is_conditional(match) for match in rule.match),
        source_namespace=any(match.source_namespace for match in rule.match),
        source_labels=frozenset(chain.from_iterable(match.source_labels for match in rule.match)),
        has_claims=any(is_claim(name) for m in rule.match for name in (*m.headers, *m.without_headers)),
        destinations=tuple(to.destination for to in rule.route if to.destination is not None),
        mirrors=tuple(to for to in (rule.mirror, *(mirror.destination for mirror in rule.mirrors)) if to),
    )


def _is_conditional(match: HTTPMatchRequest) -> bool:
    return bool(match.port or match.gateways or match.source_labels or match.source_namespace)


class _Traits:
    """The traits of the rules of a VirtualService without duplicates, and the traits of each rule, which do not affect
    equality."""

    __slots__ = ("by_rule", "traits")

    def __init__(self, by_rule: ByRule[RuleTraits], traits: tuple[RuleTraits, ...]) -> None:
        self.by_rule, self.traits = by_rule, traits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Traits) and self.traits == other.traits

    __hash__ = None  # type: ignore[assignment]


@updated
def _many_rule_traits(db: Mesh, previous: _Traits | None, key: ObjectKey) -> _Traits:
    row = virtual_service(db, key)
    rules = row.spec.http if row is not None else ()
    before = previous or _Traits(ByRule(), ())
    shared = {traits: traits for traits in before.traits}

    def compute(rule: HTTPRoute) -> RuleTraits:
        traits = build_rule_traits(rule)
        return shared.setdefault(traits, traits)

    return _Traits(before.by_rule, tuple(dict.fromkeys(before.by_rule.values(rules, compute))))


@derived
def rule_traits(db: Mesh, key: ObjectKey) -> tuple[RuleTraits, ...]:
    """Return the traits of the rules of a VirtualService, in the order of the rules, without duplicates."""
    row = virtual_service(db, key)
    rules = row.spec.http if row is not None else ()
    if len(rules) > MANY_RULES:
        return _many_rule_traits(db, key).traits
    return tuple(dict.fromkeys(map(build_rule_traits, rules)))
