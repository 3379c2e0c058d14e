"""Says what one proxy is to be sent, as references to shared derived groups of resources."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pilot.derive import Derived, Gather, Lookup


class Group(NamedTuple):
    """Names a derived value `fn(db, *args)` that is a Mapping of Resource, shared by every proxy whose plan names it.

    The resources are the mapping's values; a resource's own name is what counts, not its key.
    """

    fn: Derived[Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]


class NamedGroup(NamedTuple):
    """Names resources that are derived only where a proxy names them: `fn(db, names, *args)` is a Mapping of Resource.

    Proxies that name the same share all of it, and those that name other things share what they have in common.
    """

    fn: Lookup[str, Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]

    def of(self, names: frozenset[str]) -> Group:
        """Returns the group for a proxy that asks for these names."""
        return Group(self.fn, (names, *self.args))


_NONE: Mapping[str, tuple[NamedGroup, ...]] = MappingProxyType({})


class Plan(NamedTuple):
    """Holds the groups of each type URL, in order; behind them those that depend on the names that a proxy asks for. Names of resources do not
    repeat across the groups of a type; where they do, the first wins.

    `asked` has groups that take the place of all others of their type where a proxy does not want everything.
    """

    groups: Mapping[str, tuple[Group, ...]]
    named: Mapping[str, tuple[NamedGroup, ...]] = _NONE

    asked: Mapping[str, tuple[NamedGroup, ...]] = _NONE

    def varies(self, type_url: str) -> bool:
        """Returns whether the groups of a type depend on the names that a proxy asks for."""
        return type_url in self.named or type_url in self.asked

    def groups_of(self, type_url: str, names: frozenset[str], wildcard: bool = True) -> tuple[Group, ...] | None:
        """Returns the groups of a type for a proxy that asks for these names, or for everything; None if the type has no groups at all."""
        if not wildcard and (asked := self.asked.get(type_url)) is not None:
            return tuple(group.of(names) for group in asked)
        groups, named = self.groups.get(type_url), self.named.get(type_url)
        return groups if named is None else (*(groups or ()), *(group.of(names) for group in named))
