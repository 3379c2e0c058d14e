"""Groups of resources, and the plans that consist of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pilot.derive import Derived, Gather, Lookup


class PatchSide(enum.Enum):
    """The side of a proxy to which a group belongs.

    It determines the match context of the EnvoyFilters that can patch the group.
    """

    OUTBOUND = "outbound"
    """The match context is GATEWAY at a gateway, and otherwise SIDECAR_OUTBOUND."""
    INBOUND = "inbound"
    """The match context is SIDECAR_INBOUND."""
    NONE = "none"
    """No match context includes the group, so EnvoyFilters cannot patch it."""


class Group(NamedTuple):
    """A derived value `fn(db, *args)` that maps keys to resources. Every proxy whose plan contains the group shares it.

    Clients identify a resource by its name, and not by its key.
    """

    fn: Derived[Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]
    patch_side: PatchSide


class NamedGroup(NamedTuple):
    """Resources that are only derived if a proxy requests them by name. `fn(db, names, *args)` maps keys to resources.

    Proxies that request the same names share the whole group. Other proxies share the resources that they have in
    common.
    """

    fn: Lookup[str, Any, Any] | Gather[Any, Any, Any]
    args: tuple[Any, ...]

    def of(self, names: frozenset[str]) -> Group:
        """Return the group for a proxy that requests these names."""
        return Group(self.fn, (names, *self.args), PatchSide.NONE)


_NO_GROUPS: Mapping[str, tuple[NamedGroup, ...]] = MappingProxyType({})


class ProxyPlan(NamedTuple):
    """Mappings from type URL to the groups that a proxy receives.

    Within a type, `groups` come before `by_name`. If a resource name occurs more than once, the first resource takes
    precedence. The groups in `explicit` replace all other groups of their type if the proxy subscribes to names instead
    of the wildcard.
    """

    groups: Mapping[str, tuple[Group, ...]]
    by_name: Mapping[str, tuple[NamedGroup, ...]] = _NO_GROUPS
    explicit: Mapping[str, tuple[NamedGroup, ...]] = _NO_GROUPS

    def depends_on_names(self, type_url: str) -> bool:
        """Return whether the groups of a type depend on the names that the proxy requests."""
        return type_url in self.by_name or type_url in self.explicit

    def groups_of(self, type_url: str, names: frozenset[str], wildcard: bool = True) -> tuple[Group, ...] | None:
        """Return the groups of a type for a proxy that requests these names, or None if the plan lacks the type."""
        if not wildcard and (explicit := self.explicit.get(type_url)) is not None:
            return tuple(group.of(names) for group in explicit)
        groups, by_name = self.groups.get(type_url), self.by_name.get(type_url)
        return groups if by_name is None else (*(groups or ()), *(group.of(names) for group in by_name))
