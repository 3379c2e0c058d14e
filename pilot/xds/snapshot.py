"""A snapshot is a group of resources at one moment; what changed since is computed once for all proxies that share it."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from pilot.envoy.resource import Resource
from pilot.xds.frames import Payload
from pilot.xds.resource_names import Names


class Matches(NamedTuple):
    """The resources of some names, and the names that there is none for (any more)."""

    payload: Payload
    missing: tuple[str, ...]


class SnapshotChange:
    """The way from one snapshot to another: resources that came or differ, names that went, and what the new ones make Envoy wait for."""

    __slots__ = ("_names", "_wanted", "payload", "removed", "warms")

    def __init__(self, resources: Iterable[Resource], removed: Iterable[str]) -> None:
        self.payload, self.removed = Payload(resources), tuple(removed)
        self.warms = frozenset(r.warms for r in self.payload.resources if r.warms)
        self._names: frozenset[str] | None = None
        self._wanted: weakref.WeakKeyDictionary[Names, Matches] | None = (
            None  # there are thousands, few of which are asked
        )

    @property
    def names(self) -> frozenset[str]:
        """Returns the names of what came, differs or went."""
        if self._names is None:
            self._names = frozenset((*(r.name for r in self.payload.resources), *self.removed))
        return self._names

    def wanted_by(self, names: Names) -> Matches:
        """Returns the part that concerns a set of names."""
        if self._wanted is None:
            self._wanted = weakref.WeakKeyDictionary()
        found = self._wanted.get(names)
        if found is None:
            resources = [r for r in self.payload.resources if r.name in names.all]
            payload = self.payload if len(resources) == len(self.payload) else Payload(resources)
            found = self._wanted[names] = Matches(payload, tuple(name for name in self.removed if name in names.all))
        return found


class Snapshot:
    """The resources of one group by name. Snapshots are compared by identity."""

    __slots__ = ("__weakref__", "_batch", "_changes", "by_name")

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.by_name: dict[str, Resource] = {}
        for resource in resources:
            self.by_name.setdefault(resource.name, resource)
        self._batch: Payload | None = None
        self._changes: weakref.WeakKeyDictionary[Snapshot, SnapshotChange] | None = None

    @property
    def payload(self) -> Payload:
        """Returns all resources as one payload."""
        if self._batch is None:
            self._batch = Payload(self.by_name.values())
        return self._batch

    def since(self, old: Snapshot) -> SnapshotChange:
        """Returns the change from `old` to this."""
        if self._changes is None:
            self._changes = weakref.WeakKeyDictionary()
        found = self._changes.get(old)
        if found is None:
            found = self._changes[old] = change_of(old.by_name, self.by_name)
        return found


def change_of(old: Mapping[str, Resource], new: Mapping[str, Resource]) -> SnapshotChange:
    """Returns the change that turns `old` into `new`; an equal resource is no change."""
    resources = [r for name, r in new.items() if (before := old.get(name)) is not r and before != r]
    removed = [name for name in old if name not in new]
    return SnapshotChange(resources, removed)


class TypeState:
    """All resources of a type that one class of proxies is to have: a snapshot for each group of their plan, no name in two.

    `groups` tells which groups these are: two states with equal `groups` are compared group by group.
    """

    __slots__ = ("__weakref__", "_last", "_matches", "groups", "snapshots")

    def __init__(self, groups: Hashable, snapshots: tuple[Snapshot, ...]) -> None:
        self.groups = groups
        self.snapshots = (
            snapshots if _are_disjoint(snapshots) else (Snapshot(r for s in snapshots for r in s.by_name.values()),)
        )
        self._matches: weakref.WeakKeyDictionary[Names, Matches] | None = None
        self._last: tuple[weakref.ref[TypeState], tuple[SnapshotChange, ...]] | None = None

    def get(self, name: str) -> Resource | None:
        for snapshot in self.snapshots:
            if name in snapshot.by_name:
                return snapshot.by_name[name]
        return None

    def select(self, names: Names) -> Matches:
        """Returns the resources of a set of names, in this state's order."""
        if self._matches is None:
            self._matches = weakref.WeakKeyDictionary()
        found = self._matches.get(names)
        if found is None:
            found = self._matches[names] = self.pick(names.all)
        return found

    def lead(self, wanted: frozenset[str]) -> Matches:
        """Returns the resources that have some names, or have them as aliases; missing are the names of none."""
        found = [
            r
            for s in self.snapshots
            for r in s.by_name.values()
            if r.name in wanted or not wanted.isdisjoint(r.aliases)
        ]
        return Matches(Payload(found), tuple(wanted.difference(*((r.name, *r.aliases) for r in found))))

    def pick(self, wanted: frozenset[str]) -> Matches:
        """Returns the same as `select`, for names that nobody else is likely to ask for."""
        if len(wanted) < 10:
            resources = [r for name in sorted(wanted) if (r := self.get(name)) is not None]
        else:
            resources = [r for s in self.snapshots for name, r in s.by_name.items() if name in wanted]
        missing = wanted.difference(*(s.by_name for s in self.snapshots)) if len(resources) < len(wanted) else ()
        return Matches(Payload(resources), tuple(missing))

    def since(self, old: TypeState) -> tuple[SnapshotChange, ...]:
        """Returns what changed from `old` to this, a change a group where the groups are the same."""
        if self._last is not None and self._last[0]() is old:
            return self._last[1]
        changes = self._since(old)
        self._last = weakref.ref(old), changes
        return changes

    def _since(self, old: TypeState) -> tuple[SnapshotChange, ...]:
        if self.groups == old.groups and len(self.snapshots) == len(old.snapshots):
            pairs = zip(old.snapshots, self.snapshots, strict=True)
            changes = tuple(new.since(before) for before, new in pairs if before is not new)
        else:
            changes = (change_of(old.union(), self.union()),)
        if len(self.snapshots) > 1:
            changes = tuple(self._settled(change) for change in changes)
        return tuple(change for change in changes if change.payload.resources or change.removed)

    def union(self) -> dict[str, Resource]:
        """Returns the resources of all groups by name."""
        return {name: r for s in self.snapshots for name, r in s.by_name.items()}

    def _settled(self, change: SnapshotChange) -> SnapshotChange:
        """Returns the change without the removal of names that are in another group now."""
        gone = [name for name in change.removed if self.get(name) is None]
        return change if len(gone) == len(change.removed) else SnapshotChange(change.payload.resources, gone)


def _are_disjoint(snapshots: tuple[Snapshot, ...]) -> bool:
    return all(a.by_name.keys().isdisjoint(b.by_name.keys()) for i, a in enumerate(snapshots) for b in snapshots[:i])
