"""Feeds deliver derived groups to connections.

A group is watched and compared only once, regardless of the number of connections that share it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from pilot.derive import UNSET, Database, Node
from pilot.envoy.plans.resource_group import Group
from pilot.xds.session.snapshot import Snapshot, TypeState

R = TypeVar("R", bound=Hashable)


class WatchedGroup:
    """The node of a group, and the snapshot of its last value."""

    __slots__ = ("feeds", "node", "snapshot", "value")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.feeds: dict[Feed[Any], None] = {}
        self.value: Any = UNSET
        self.snapshot: Snapshot | None = None


class Feed(Generic[R]):
    """All groups of one type in a plan, and the feed's readers in the order in which they were added.

    `last_state` is the state at the last read. If `is_stale` is set, `state` may differ from it.
    """

    __slots__ = ("_db", "_snapshots", "groups", "is_stale", "last_state", "readers", "type_url", "watched_groups")

    def __init__(
        self,
        db: Database,
        type_url: str,
        groups: tuple[Group, ...],
        watched_groups: tuple[WatchedGroup, ...],
    ) -> None:
        self._db, self.type_url, self.groups, self.watched_groups = db, type_url, groups, watched_groups
        self.readers: dict[R, None] = {}
        self.is_stale = True
        self.last_state: TypeState | None = None
        self._snapshots: tuple[Snapshot, ...] = ()

    @property
    def state(self) -> TypeState | None:
        """Return the last good values of the groups. Return None until each group has been derived without an error.

        Inside of `Database.pausing`, Paused may be raised after each part. The next read continues with the next part.
        """
        if self.is_stale:
            current = [self._snapshot(group) for group in self.watched_groups]
            self.is_stale = False
            snapshots = tuple(snapshot for snapshot in current if snapshot is not None)
            if len(snapshots) == len(current) and (self.last_state is None or snapshots != self._snapshots):
                self._snapshots, self.last_state = snapshots, TypeState(self.groups, snapshots)
        return self.last_state

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots of the groups at the last read."""
        return self._snapshots

    def _snapshot(self, group: WatchedGroup) -> Snapshot | None:
        if group.node.stale:
            self._db.refresh(group.node)
            self._db.pause_if_due()
        value = group.node.value
        if value is not group.value:
            group.value, group.snapshot = value, Snapshot(value.values())
            self._db.pause_if_due()
        return group.snapshot


class Feeds(Generic[R]):
    """All feeds. `hits` is the number of reads of an up-to-date feed, and `misses` is the number of reads of a stale
    feed. `pause_if_due` is that of the database."""

    def __init__(self, db: Database) -> None:
        self.hits = self.misses = 0
        self.pause_if_due = db.pause_if_due
        self._db = db
        self._feeds: dict[tuple[str, tuple[Group, ...]], Feed[R]] = {}
        self._groups: dict[Group, WatchedGroup] = {}
        self._by_node: dict[Node, WatchedGroup] = {}

    def open(self, type_url: str, groups: tuple[Group, ...], reader: R) -> Feed[R]:
        """Add a reader to the feed of a type and its groups, and return the feed.

        The type is part of a feed's key, because types without resources have no groups.
        """
        feed = self._feeds.get((type_url, groups))
        if feed is None:
            feed = self._feeds[type_url, groups] = Feed(
                self._db, type_url, groups, tuple(self._watch(group) for group in groups)
            )
            for watched in feed.watched_groups:
                watched.feeds[feed] = None
        feed.readers[reader] = None
        return feed

    def close(self, feed: Feed[R], reader: R) -> None:
        """Remove a reader from a feed. If the feed has no other readers, remove the feed too."""
        feed.readers.pop(reader, None)
        if feed.readers:
            return
        del self._feeds[feed.type_url, feed.groups]
        for group, watched in zip(feed.groups, feed.watched_groups, strict=True):
            watched.feeds.pop(feed, None)
            if not watched.feeds:
                del self._groups[group], self._by_node[watched.node]
                self._db.unwatch(watched.node)

    def mark_stale(self, nodes: Iterable[Node]) -> dict[Feed[R], None]:
        """Mark the feeds of affected nodes as stale, and return these feeds."""
        feeds: dict[Feed[R], None] = {}
        for node in nodes:
            if watched := self._by_node.get(node):
                for feed in watched.feeds:
                    feed.is_stale = True
                    feeds[feed] = None
        return feeds

    def feeds_of(self, node: Node) -> tuple[Feed[R], ...]:
        """Return the feeds of a group's node."""
        watched = self._by_node.get(node)
        return tuple(watched.feeds) if watched is not None else ()

    def __len__(self) -> int:
        return len(self._feeds)

    def _watch(self, group: Group) -> WatchedGroup:
        watched = self._groups.get(group)
        if watched is None:
            node = self._db.watch_later(group.fn, *group.args)
            watched = self._groups[group] = self._by_node[node] = WatchedGroup(node)
        return watched
