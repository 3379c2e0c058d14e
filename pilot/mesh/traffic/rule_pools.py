"""The DestinationRules of one host in one namespace, merged into the entries that proxies choose from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.mesh.model.facets import Labels

PUBLIC, OWN = "*", "."


class RuleDefaults(NamedTuple):
    """Settings of rules: with `private` a rule without exportTo is for its own namespace; with `by_export` only rules of equal exportTo are
    merged."""

    root_namespace: str
    private: bool
    by_export: bool


class PooledRule(NamedTuple):
    """A rule as written. Without `selector` it is for all workloads."""

    key: ObjectKey
    export_to: frozenset[str]
    selector: Labels | None

    @property
    def reach(self) -> frozenset[str]:
        """Returns where the rule is exported to: a rule for some workloads never is."""
        return self.export_to if self.selector is None else frozenset((OWN,))


class RuleEntry(NamedTuple):
    """Rules merged into one; exportTo and selector are those of the first."""

    sources: tuple[ObjectKey, ...]
    reach: frozenset[str]
    selector: Labels | None

    def visible_in(self, namespace: str) -> bool:
        """Returns whether the entry is exported to another namespace."""
        return not self.reach or PUBLIC in self.reach or namespace in self.reach


class Pools(msgspec.Struct, frozen=True):
    """`local` is for clients of the rules' own namespace; `exported` has those that others may see; `private` has the rest, where the
    namespace is the root namespace."""

    local: tuple[RuleEntry, ...] = ()
    exported: tuple[RuleEntry, ...] = ()
    private: tuple[RuleEntry, ...] = ()

    def pool(self, name: str) -> tuple[RuleEntry, ...]:
        """Returns the entries of a pool by the name of the field."""
        entries: tuple[RuleEntry, ...] = getattr(self, name)
        return entries


def build_pools(rules: list[PooledRule], namespace: str, defaults: RuleDefaults) -> Pools:
    """Returns the pools of the rules of one host and namespace, which are given in order of precedence."""

    def is_local(rule: PooledRule) -> bool:
        return not rule.reach or not rule.reach.isdisjoint((PUBLIC, OWN, namespace))

    def is_private(rule: PooledRule) -> bool:
        return rule.reach in ({OWN}, {namespace}) or (not rule.reach and defaults.private)

    local = [r for r in rules if is_local(r)]
    exported = [r for r in rules if not is_private(r)]
    private = [r for r in rules if is_private(r)] if namespace == defaults.root_namespace else []
    return Pools(*(merge_entries(pool, defaults.by_export) for pool in (local, exported, private)))


def merge_entries(rules: Sequence[PooledRule], by_export: bool) -> tuple[RuleEntry, ...]:
    """Returns the rules of one pool, which are given in order of precedence, as the entries that a client chooses from: those for some workloads
    come first.

    Rules with one selector make one entry. A rule for all workloads counts for those that a selector chooses too, after theirs: with
    `by_export` only where it is exported at least as far, which for a selector's entry is the own namespace.
    """
    by_selector: dict[Labels, list[PooledRule]] = {}
    for rule in rules:
        if rule.selector is not None:
            by_selector.setdefault(rule.selector, []).append(rule)
    general = [rule for rule in rules if rule.selector is None]
    chosen = [
        [*own, *(r for r in general if not by_export or _reaches(r, own[0].reach))] for own in by_selector.values()
    ]
    everybody = _by_reach(general, bool(chosen)) if by_export else [general] if general else []
    return tuple(
        RuleEntry(tuple(r.key for r in group), group[0].reach, group[0].selector) for group in (*chosen, *everybody)
    )


def _by_reach(general: Iterable[PooledRule], selected: bool) -> list[list[PooledRule]]:
    """Returns rules for all workloads in groups of which the first rule's export reaches least.

    A rule belongs to every group whose reach it covers, and begins one of its own unless the latest group took it. Users see one more
    thing that istiod does: where selectors choose some workloads, a rule that is exported to just the own namespace begins no first group.
    """
    groups: list[list[PooledRule]] = []
    for rule in general:
        taking = [group for group in groups if _reaches(rule, group[0].reach)]
        for group in taking:
            group.append(rule)
        taken = taking[-1:] == groups[-1:] if groups else selected and rule.reach == {OWN}
        if not taken:
            groups.append([rule])
    return groups


def _reaches(rule: PooledRule, reach: frozenset[str]) -> bool:
    """Returns whether a rule is exported as far as that, by the names that both say. No exportTo at all is like no other."""
    return rule.reach == reach or (bool(reach) and rule.reach >= reach)
