"""Connections follow derived groups: each is watched and compared once, whoever shares it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from pilot.derive import UNSET, Database, Node
from pilot.envoy.plans.plan import Group
from pilot.xds.snapshot import Snapshot, TypeState

R = TypeVar("R", bound=Hashable)


class Watched:
    """One group: its node, and the snapshot of the value that it last had."""

    __slots__ = ("feeds", "node", "snapshot", "value")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.feeds: dict[Feed[Any], None] = {}
        self.value: Any = UNSET
        self.snapshot: Snapshot | None = None


class Feed(Generic[R]):
    """All groups of one type in a plan, and who follows them, the oldest reader first.

    `seen` is the state as it was read last; where `stale`, `state` may be another one.
    """

    __slots__ = ("_db", "_snapshots", "groups", "readers", "seen", "stale", "type_url", "watched")

    def __init__(self, db: Database, type_url: str, groups: tuple[Group, ...], watched: tuple[Watched, ...]) -> None:
        self._db, self.type_url, self.groups, self.watched = db, type_url, groups, watched
        self.readers: dict[R, None] = {}
        self.stale = True
        self.seen: TypeState | None = None
        self._snapshots: tuple[Snapshot, ...] = ()

    @property
    def state(self) -> TypeState | None:
        """Returns what the groups hold now: their last good values. None until each has been computed once without an error."""
        if self.stale:
            self.stale = False
            found = [self._snapshot(watched) for watched in self.watched]
            snapshots = tuple(snapshot for snapshot in found if snapshot is not None)
            if len(snapshots) == len(found) and (self.seen is None or snapshots != self._snapshots):
                self._snapshots, self.seen = snapshots, TypeState(self.groups, snapshots)
        return self.seen

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Returns the groups as they were read last."""
        return self._snapshots

    def _snapshot(self, watched: Watched) -> Snapshot | None:
        if watched.node.stale:
            self._db.refresh(watched.node)
        value = watched.node.value
        if value is not watched.value:
            watched.value, watched.snapshot = value, Snapshot(value.values())
        return watched.snapshot


class Feeds(Generic[R]):
    """Opens feeds for readers, and tells which of them a commit reached. `hits` and `misses`: how often a reader looked at a feed that was as it had
    been read last, or that had to be read anew."""

    def __init__(self, db: Database) -> None:
        self.hits = self.misses = 0
        self._db = db
        self._feeds: dict[tuple[str, tuple[Group, ...]], Feed[R]] = {}
        self._groups: dict[Group, Watched] = {}
        self._by_node: dict[Node, Watched] = {}

    def open(self, type_url: str, groups: tuple[Group, ...], reader: R) -> Feed[R]:
        """Returns the feed of a type that has some groups, with one more reader. Types of which there is nothing have no groups, each for itself."""
        feed = self._feeds.get((type_url, groups))
        if feed is None:
            feed = self._feeds[type_url, groups] = Feed(
                self._db, type_url, groups, tuple(self._watch(group) for group in groups)
            )
            for watched in feed.watched:
                watched.feeds[feed] = None
        feed.readers[reader] = None
        return feed

    def close(self, feed: Feed[R], reader: R) -> None:
        """Undoes `open`; a feed without readers is given up."""
        feed.readers.pop(reader, None)
        if feed.readers:
            return
        del self._feeds[feed.type_url, feed.groups]
        for group, watched in zip(feed.groups, feed.watched, strict=True):
            watched.feeds.pop(feed, None)
            if not watched.feeds:
                del self._groups[group], self._by_node[watched.node]
                self._db.unwatch(watched.node)

    def reached(self, nodes: Iterable[Node]) -> dict[Feed[R], None]:
        """Returns the feeds of the nodes that a commit reports; each looks again when it is read."""
        feeds: dict[Feed[R], None] = {}
        for node in nodes:
            if watched := self._by_node.get(node):
                for feed in watched.feeds:
                    feed.stale = True
                    feeds[feed] = None
        return feeds

    def __len__(self) -> int:
        return len(self._feeds)

    def _watch(self, group: Group) -> Watched:
        watched = self._groups.get(group)
        if watched is None:
            node = self._db.watch(group.fn, *group.args)
            watched = self._groups[group] = self._by_node[node] = Watched(node)
        return watched
