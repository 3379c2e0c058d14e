"""The traits of the HTTP rules of a VirtualService, on which its routes and checks depend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar

import msgspec

from pilot.config.networking.virtual_service import Destination, HTTPMatchRequest, HTTPRoute
from pilot.config.object import ObjectKey
from pilot.config.validation.traffic.headers import is_claim
from pilot.derive import derived, updated
from pilot.lib.long_tuples import differing_span, missing
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import virtual_service

T = TypeVar("T")
MANY_RULES = 20
"""Number of rules from which it is worth the memory to keep what is computed from each rule."""


class ByRule(Generic[T]):
    """A value for each rule of a VirtualService, as far as they have been computed.

    An edit of one of many HTTPRoutes with the same host changes one rule of their VirtualService, and the objects of
    the others stay.
    """

    __slots__ = ("_computed", "_rules")

    def __init__(self) -> None:
        self._rules: tuple[HTTPRoute, ...] = ()
        self._computed: list[T | None] = []

    def align(self, rules: tuple[HTTPRoute, ...]) -> list[T | None]:
        """Return what has been computed from each rule, or None. The caller replaces None in this list."""
        old, new = differing_span(self._rules, rules)
        old_values = dict(zip(map(id, self._rules[old]), self._computed[old], strict=True))
        self._computed[old] = [old_values.get(id(rule)) for rule in rules[new]]
        self._rules = rules
        return self._computed

    def forget(self, is_outdated: Callable[[HTTPRoute], bool]) -> None:
        """Forget what has been computed from some rules."""
        rules_computed = zip(self._rules, self._computed, strict=True)
        self._computed = [None if value is None or is_outdated(rule) else value for rule, value in rules_computed]


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
        destinations=_destinations_of(rule),
        mirrors=_mirrors_of(rule),
    )


def _destinations_of(rule: HTTPRoute) -> tuple[Destination, ...]:
    return tuple(to.destination for to in rule.route if to.destination is not None)


def _mirrors_of(rule: HTTPRoute) -> tuple[Destination, ...]:
    return tuple(to for to in (rule.mirror, *(mirror.destination for mirror in rule.mirrors)) if to)


def hosts_of(rule: HTTPRoute) -> Iterator[str]:
    """Return the hosts of the destinations of a rule, including mirrors."""
    return (to.host for to in (*_destinations_of(rule), *_mirrors_of(rule)))


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

    computed = before.by_rule.align(rules)
    for position in missing(computed):
        traits = build_rule_traits(rules[position])
        computed[position] = shared.setdefault(traits, traits)
    return _Traits(before.by_rule, tuple(dict.fromkeys(computed)))  # type: ignore[arg-type]


@derived
def rule_traits(db: Mesh, key: ObjectKey) -> tuple[RuleTraits, ...]:
    """Return the traits of the rules of a VirtualService, in the order of the rules, without duplicates."""
    row = virtual_service(db, key)
    rules = row.spec.http if row is not None else ()
    if len(rules) > MANY_RULES:
        return _many_rule_traits(db, key).traits
    return tuple(dict.fromkeys(map(build_rule_traits, rules)))
