"""Snapshots of resource groups. The difference between two snapshots is computed once for all proxies that share it."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping
from itertools import compress, filterfalse
from operator import attrgetter, is_not
from typing import NamedTuple

from pilot.envoy.resource import Resource
from pilot.xds.session.name_sets import Names
from pilot.xds.session.response_encoding import Payload

_name_of = attrgetter("name")


class Matches(NamedTuple):
    """The resources that have one of the requested names, and the names that have no resource."""

    payload: Payload
    missing: tuple[str, ...]


class SnapshotChange:
    """The difference between two snapshots.

    It consists of new and changed resources, and removed names.
    """

    __slots__ = ("_by_names", "_names", "_warms", "payload", "removed")

    def __init__(self, resources: Iterable[Resource], removed: Iterable[str]) -> None:
        self.payload, self.removed = Payload(resources), tuple(removed)
        self._warms: frozenset[str] | None = None
        self._names: frozenset[str] | None = None
        # Created on demand: of thousands of changes, few are filtered by name.
        self._by_names: weakref.WeakKeyDictionary[Names, Matches] | None = None

    @property
    def names(self) -> frozenset[str]:
        """Return the names of new, changed and removed resources."""
        if self._names is None:
            self._names = frozenset((*map(_name_of, self.payload.resources), *self.removed))
        return self._names

    @property
    def warms(self) -> frozenset[str]:
        """Return the names of the endpoints that Envoy waits for because of the changes."""
        if self._warms is None:
            self._warms = frozenset(filter(None, map(attrgetter("warms"), self.payload.resources)))
        return self._warms

    def restrict(self, names: Names) -> Matches:
        """Return the part of the change that affects the given names."""
        if self._by_names is None:
            self._by_names = weakref.WeakKeyDictionary()
        matches = self._by_names.get(names)
        if matches is None:
            is_requested = names.all.__contains__
            all_resources = self.payload.resources
            resources = tuple(compress(all_resources, map(is_requested, map(_name_of, all_resources))))
            payload = self.payload if len(resources) == len(self.payload) else Payload(resources)
            removed = tuple(filter(is_requested, self.removed))
            matches = self._by_names[names] = Matches(payload, removed)
        return matches


class Snapshot:
    """The resources of one group, keyed by name. Snapshots are compared by identity."""

    __slots__ = ("__weakref__", "_changes", "_payload", "by_name")

    def __init__(self, resources: Iterable[Resource]) -> None:
        listed = tuple(resources)
        self.by_name: dict[str, Resource] = dict(zip(map(_name_of, listed), listed, strict=True))
        if len(self.by_name) < len(listed):  # the first resource with a name wins
            self.by_name |= {resource.name: resource for resource in reversed(listed)}
        self._payload: Payload | None = None
        self._changes: weakref.WeakKeyDictionary[Snapshot, SnapshotChange] | None = None

    @property
    def payload(self) -> Payload:
        """Return all resources as one payload."""
        if self._payload is None:
            self._payload = Payload(self.by_name.values())
        return self._payload

    def since(self, old: Snapshot) -> SnapshotChange:
        """Return the change from `old` to this snapshot."""
        if self._changes is None:
            self._changes = weakref.WeakKeyDictionary()
        change = self._changes.get(old)
        if change is None:
            change = self._changes[old] = change_of(old.by_name, self.by_name)
        return change


def change_of(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> SnapshotChange:
    """Return the change from `old` to `new`. A resource that was replaced by an equal resource is unchanged."""
    replaced = compress(new.items(), map(is_not, map(old.get, new), new.values()))
    resources = [r for name, r in replaced if old.get(name) != r]
    removed = filterfalse(new.__contains__, old)
    return SnapshotChange(resources, removed)


class TypeState:
    """The resources of a type for one class of proxies. It has one snapshot for each group in their plan. No two
    snapshots contain the same name.

    `groups` identifies the groups. Two states with equal `groups` are compared group by group.
    """

    __slots__ = ("__weakref__", "_last_change", "_matches", "groups", "snapshots")

    def __init__(self, groups: Hashable, snapshots: tuple[Snapshot, ...]) -> None:
        self.groups = groups
        self.snapshots = (
            snapshots if _are_disjoint(snapshots) else (Snapshot(r for s in snapshots for r in s.by_name.values()),)
        )
        self._matches: weakref.WeakKeyDictionary[Names, Matches] | None = None
        self._last_change: tuple[weakref.ref[TypeState], tuple[SnapshotChange, ...]] | None = None

    def get(self, name: str) -> Resource | None:
        for snapshot in self.snapshots:
            if name in snapshot.by_name:
                return snapshot.by_name[name]
        return None

    def select(self, names: Names) -> Matches:
        """Return the resources with the given names."""
        if self._matches is None:
            self._matches = weakref.WeakKeyDictionary()
        matches = self._matches.get(names)
        if matches is None:
            matches = self._matches[names] = self.pick(names.all)
        return matches

    def resolve(self, names: frozenset[str]) -> Matches:
        """Return the resources whose name or alias is one of the given names, and the names that have no resource."""
        resources = [
            r for s in self.snapshots for r in s.by_name.values() if r.name in names or not names.isdisjoint(r.aliases)
        ]
        missing = names.difference(*((r.name, *r.aliases) for r in resources))
        return Matches(Payload(resources), tuple(missing))

    def pick(self, names: frozenset[str]) -> Matches:
        """Return the resources with the given names, like `select`, but do not cache the result.

        This is for names that no other proxy is likely to request.
        """
        if len(names) < 10:
            resources = [r for name in sorted(names) if (r := self.get(name)) is not None]
        else:
            resources = [r for s in self.snapshots for name, r in s.by_name.items() if name in names]
        missing = names.difference(*(s.by_name for s in self.snapshots)) if len(resources) < len(names) else ()
        return Matches(Payload(resources), tuple(missing))

    def since(self, old: TypeState) -> tuple[SnapshotChange, ...]:
        """Return the changes from `old` to this state. If the groups are the same, there is one change for each changed
        group."""
        if self._last_change is not None and self._last_change[0]() is old:
            return self._last_change[1]
        changes = self._since(old)
        self._last_change = weakref.ref(old), changes
        return changes

    def _since(self, old: TypeState) -> tuple[SnapshotChange, ...]:
        if self.groups == old.groups and len(self.snapshots) == len(old.snapshots):
            pairs = zip(old.snapshots, self.snapshots, strict=True)
            changes = tuple(new.since(before) for before, new in pairs if before is not new)
        else:
            changes = (change_of(old.union(), self.union()),)
        if len(self.snapshots) > 1:
            changes = tuple(self._without_moves(change) for change in changes)
        return tuple(change for change in changes if change.payload.resources or change.removed)

    def union(self) -> dict[str, Resource]:
        """Return the resources of all groups, keyed by name."""
        return {name: r for s in self.snapshots for name, r in s.by_name.items()}

    def _without_moves(self, change: SnapshotChange) -> SnapshotChange:
        """Return the change without the removals of names that are now in another group."""
        removed = [name for name in change.removed if self.get(name) is None]
        return change if len(removed) == len(change.removed) else SnapshotChange(change.payload.resources, removed)


def _are_disjoint(snapshots: tuple[Snapshot, ...]) -> bool:
    return all(a.by_name.keys().isdisjoint(b.by_name.keys()) for i, a in enumerate(snapshots) for b in snapshots[:i])
