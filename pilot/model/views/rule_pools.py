"""The DestinationRules of one host in one namespace, merged into the entries that proxies choose from."""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from pilot.model.config.object import ObjectKey
from pilot.model.facets import Labels

PUBLIC, OWN = "*", "."


class Defaults(NamedTuple):
    """`private`: a rule without exportTo is for its own namespace. `by_export`: only rules of equal exportTo are merged."""

    root_namespace: str
    private: bool
    by_export: bool


class Rule(NamedTuple):
    """A rule as written: `selector` None where it has none, which then is for all workloads."""

    key: ObjectKey
    export_to: frozenset[str]
    selector: Labels | None

    @property
    def reach(self) -> frozenset[str]:
        """A rule for some workloads is never exported."""
        return self.export_to if self.selector is None else frozenset((OWN,))


class RuleEntry(NamedTuple):
    """Rules merged into one; exportTo and selector are those of the first."""

    sources: tuple[ObjectKey, ...]
    reach: frozenset[str]
    selector: Labels | None

    def visible_in(self, namespace: str) -> bool:
        """Is it exported to another namespace?"""
        return not self.reach or PUBLIC in self.reach or namespace in self.reach


class Pools(msgspec.Struct, frozen=True):
    """`local`: for clients of the rules' own namespace; `exported`: those that others may see; `private`: the rest, where the
    namespace is the root namespace."""

    local: tuple[RuleEntry, ...] = ()
    exported: tuple[RuleEntry, ...] = ()
    private: tuple[RuleEntry, ...] = ()

    def pool(self, name: str) -> tuple[RuleEntry, ...]:
        """By the name of the field."""
        entries: tuple[RuleEntry, ...] = getattr(self, name)
        return entries


def build_pools(rules: list[Rule], namespace: str, defaults: Defaults) -> Pools:
    """Of the rules of one host and namespace, in order of precedence."""

    def is_local(rule: Rule) -> bool:
        return not rule.reach or not rule.reach.isdisjoint((PUBLIC, OWN, namespace))

    def is_private(rule: Rule) -> bool:
        return rule.reach in ({OWN}, {namespace}) or (not rule.reach and defaults.private)

    local = [r for r in rules if is_local(r)]
    exported = [r for r in rules if not is_private(r)]
    private = [r for r in rules if is_private(r)] if namespace == defaults.root_namespace else []
    return Pools(*(merge_entries(pool, defaults.by_export) for pool in (local, exported, private)))


def merge_entries(rules: Iterable[Rule], by_export: bool) -> tuple[RuleEntry, ...]:
    """Add each rule to the entries that it may be merged with; it is an entry of its own unless it fits the last one.

    That the last entry decides, and that a rule for all workloads joins one for some where their exportTo agree, is what istiod
    does (pilot/pkg/model/destination_rule.go), and users see it.
    """
    entries: list[RuleEntry] = []
    for rule in rules:
        separate = True
        for i, entry in enumerate(entries):
            if by_export:
                separate = True
                if rule.reach == entry.reach:
                    separate = False
                elif not entry.reach or not rule.reach >= entry.reach:
                    continue
            if rule.selector is not None and entry.selector is not None and rule.selector != entry.selector:
                separate = True
                continue
            if (rule.selector is None) == (entry.selector is None):
                separate = False
            entries[i] = entry._replace(sources=(*entry.sources, rule.key))
        if separate:
            entries.append(RuleEntry((rule.key,), rule.reach, rule.selector))
    return tuple(entries)
