"""The DestinationRules for one host in one namespace, merged into entries. Each proxy uses one of the entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.mesh.model.facets import Labels

PUBLIC, OWN = "*", "."
MAX_MERGED = 64
"""Maximum number of rules that are merged for a host. A thousand rules would multiply the subsets of each service."""


class RuleDefaults(NamedTuple):
    """Settings that affect rules.

    - `private`: whether rules without exportTo apply only in their own namespace.
    - `by_export`: whether only rules with equal exportTo are merged.
    """

    root_namespace: str
    private: bool
    by_export: bool


class PooledRule(NamedTuple):
    """A rule as configured. If `selector` is None, it applies to all workloads."""

    key: ObjectKey
    export_to: frozenset[str]
    selector: Labels | None

    @property
    def reach(self) -> frozenset[str]:
        """The namespaces that the rule is exported to. Rules with a selector are not exported."""
        return self.export_to if self.selector is None else frozenset((OWN,))


class RuleEntry(NamedTuple):
    """The result of merging rules. It has the exportTo and selector of the first rule."""

    sources: tuple[ObjectKey, ...]
    reach: frozenset[str]
    selector: Labels | None

    def visible_in(self, namespace: str) -> bool:
        """Return whether the entry is exported to `namespace`, which is not the namespace of its rules."""
        return not self.reach or PUBLIC in self.reach or namespace in self.reach


class Pools(msgspec.Struct, frozen=True):
    """The entries for one host in one namespace.

    - `local`: entries for clients in the same namespace.
    - `exported`: entries that may be visible in other namespaces.
    - `private`: the other entries, if the namespace is the root namespace.
    """

    local: tuple[RuleEntry, ...] = ()
    exported: tuple[RuleEntry, ...] = ()
    private: tuple[RuleEntry, ...] = ()

    def pool(self, name: str) -> tuple[RuleEntry, ...]:
        """Return the entries of the pool with a field name."""
        entries: tuple[RuleEntry, ...] = getattr(self, name)
        return entries


def build_pools(rules: list[PooledRule], namespace: str, defaults: RuleDefaults) -> Pools:
    """Return the pools for one host in one namespace. The rules are in order of precedence."""

    def is_local(rule: PooledRule) -> bool:
        return not rule.reach or not rule.reach.isdisjoint((PUBLIC, OWN, namespace))

    def is_private(rule: PooledRule) -> bool:
        return rule.reach in ({OWN}, {namespace}) or (not rule.reach and defaults.private)

    local = [r for r in rules if is_local(r)]
    exported = [r for r in rules if not is_private(r)]
    private = [r for r in rules if is_private(r)] if namespace == defaults.root_namespace else []
    return Pools(*(merge_entries(pool, defaults.by_export) for pool in (local, exported, private)))


def merge_entries(rules: Sequence[PooledRule], by_export: bool) -> tuple[RuleEntry, ...]:
    """Return the entries of one pool. Entries with a selector are first. `rules` must be in order of precedence.

    Rules with equal selectors form one entry, to which the rules without a selector are appended. With `by_export`, a
    rule is only appended if its reach includes that of the entry.
    """
    by_selector: dict[Labels, list[PooledRule]] = {}
    for rule in rules:
        if rule.selector is not None:
            by_selector.setdefault(rule.selector, []).append(rule)
    general = [rule for rule in rules if rule.selector is None]
    selected = [
        [*own, *(r for r in general if not by_export or _reaches(r, own[0].reach))] for own in by_selector.values()
    ]
    unselected = _by_reach(general, bool(selected)) if by_export else [general] if general else []
    return tuple(
        RuleEntry(tuple(r.key for r in group[:MAX_MERGED]), group[0].reach, group[0].selector)
        for group in (*selected, *unselected)
    )


def _by_reach(general: Iterable[PooledRule], selected: bool) -> list[list[PooledRule]]:
    """Return groups of the rules without a selector. The first rule of a group has the smallest reach.

    A rule joins every group whose reach it covers. It starts a new group unless it joined the latest group. As in
    istiod, if there are rules with selectors, a rule that is exported only to its own namespace does not start the
    first group.
    """
    groups: list[list[PooledRule]] = []
    for rule in general:
        covered = [group for group in groups if _reaches(rule, group[0].reach)]
        for group in covered:
            group.append(rule)
        joined_latest = covered[-1:] == groups[-1:] if groups else selected and rule.reach == {OWN}
        if not joined_latest:
            groups.append([rule])
    return groups


def _reaches(rule: PooledRule, reach: frozenset[str]) -> bool:
    """Return whether the reach of a rule includes `reach`. An empty reach is included only in an empty one."""
    return rule.reach == reach or (bool(reach) and rule.reach >= reach)
