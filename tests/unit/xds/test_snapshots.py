"""Sharing and comparison of snapshots, views and feeds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping

from pilot.derive import Paused, derived
from pilot.envoy.plans.resource_group import Group, PatchSide
from pilot.envoy.resource import Resource
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.feed import Feeds
from pilot.xds.session.name_sets import NameSets
from pilot.xds.session.snapshot import Snapshot, TypeState
from testing.clients.scripted_stream import resource


@derived
def group(db: Mesh, name: str) -> Mapping[str, Resource]:
    contents: dict[str, str] = db.mesh.get(name) or {}
    if "fail" in contents.values():
        raise ZeroDivisionError(name)
    return {key: resource("cds", key, content) for key, content in contents.items()}


A, B = Group(group, ("a",), PatchSide.NONE), Group(group, ("b",), PatchSide.NONE)


def snapshot(**contents: str) -> Snapshot:
    return Snapshot(resource("cds", name, content) for name, content in contents.items())


def names(change: object) -> list[str]:
    return [r.name for r in change.payload.resources]  # type: ignore[attr-defined]


def test_change_is_memoised_and_excludes_equal_resources() -> None:
    old, new = snapshot(a="1", b="1", c="1"), snapshot(a="1", b="2", d="1")
    change = new.since(old)
    assert (names(change), change.removed, change.warms, change.names) == (
        ["b", "d"],
        ("c",),
        {"b", "d"},
        {"b", "c", "d"},
    )
    assert new.since(old) is change


def test_restricted_changes_are_shared() -> None:
    sets, change = NameSets(), snapshot(a="2", b="2").since(snapshot(a="1", b="1", c="1"))
    subset, complete = sets.of(frozenset("ac")), sets.of(frozenset("abc"))
    assert change.restrict(subset) is change.restrict(sets.of(frozenset("ca")))
    assert ([r.name for r in change.restrict(subset).payload.resources], change.restrict(subset).missing) == (
        ["a"],
        ("c",),
    )
    assert change.restrict(complete).payload is change.payload


def test_views_are_compared_by_group() -> None:
    one, two, three = snapshot(a="1"), snapshot(b="1"), snapshot(b="2")
    old, new = TypeState("plan", (one, two)), TypeState("plan", (one, three))
    (change,) = new.since(old)
    assert change is three.since(two)
    assert new.since(old) is new.since(old)
    assert [names(c) for c in TypeState("other plan", (one, three)).since(old)] == [["b"]]


def test_first_group_wins_for_a_duplicate_name() -> None:
    view = TypeState("plan", (snapshot(a="1"), snapshot(a="2", b="1")))
    assert view.get("a") == resource("cds", "a", "1")
    assert [r.name for s in view.snapshots for r in s.by_name.values()] == ["a", "b"]
    (change,) = TypeState("plan", (snapshot(a="2"), snapshot(a="2", b="1"))).since(view)
    assert (names(change), change.removed) == (["a"], ())


def test_view_does_not_retain_its_predecessor() -> None:
    old, new = TypeState("plan", (snapshot(a="1"),)), TypeState("plan", (snapshot(a="2"),))
    new.since(old)
    reference = weakref.ref(old)
    del old
    gc.collect()
    assert reference() is None


def test_name_sets_are_shared_and_released() -> None:
    sets = NameSets()
    base = len(sets)
    initial = sets.of(frozenset("ab"))
    changed = sets.change(initial, frozenset("c"), frozenset("a"))
    assert changed is sets.change(initial, frozenset("c"), frozenset("a")) is sets.of(frozenset("bc"))
    assert len(sets) == base + 2
    del initial, changed
    assert len(sets) == base


class TestFeeds:
    def setup_method(self) -> None:
        self.db = Mesh()
        self.feeds: Feeds[str] = Feeds(self.db)

    def set(self, name: str, **contents: str) -> list[tuple[Group, ...]]:
        return [feed.groups for feed in self.feeds.mark_stale(self.db.commit([(self.db.mesh, name, contents)]))]

    def test_read_of_a_feed_is_interrupted_after_each_part(self) -> None:
        self.set("a", x="1")
        self.set("b", y="1")
        feed, pauses = self.feeds.open("cds", (A, B), "one"), 0
        while feed.is_stale:
            try:
                with self.db.pausing(lambda: True):
                    state = feed.state
            except Paused:
                pauses += 1
        assert state is not None
        assert [*state.union()] == ["x", "y"]
        assert pauses == 4, "each group is derived, and then copied"

    def test_readers_share_feeds_and_feeds_share_groups(self) -> None:
        one, two = self.feeds.open("cds", (A,), "one"), self.feeds.open("cds", (A,), "two")
        both = self.feeds.open("cds", (A, B), "one")
        assert one is two
        assert list(one.readers) == ["one", "two"]
        assert None not in (one.state, both.state)
        assert self.set("a", x="1") == [(A,), (A, B)]
        assert one.state is not None
        assert both.state is not None
        assert both.state.snapshots[0] is one.state.snapshots[0]
        assert self.set("b", y="1") == [(A, B)]

    def test_equal_result_keeps_the_view(self) -> None:
        feed = self.feeds.open("cds", (A,), "one")
        self.set("a", x="1")
        view = feed.state
        self.set("a", x="1")
        assert feed.state is view
        self.set("a", x="2")
        assert feed.state is not view

    def test_failed_group_keeps_its_last_valid_state(self) -> None:
        self.set("a", x="fail")
        feed = self.feeds.open("cds", (A, B), "one")
        assert feed.state is None
        self.set("a", x="1")
        view = feed.state
        assert view is not None
        self.set("a", x="fail")
        assert feed.state is view

    def test_unread_feeds_are_released(self) -> None:
        nodes = len(self.db)
        one, both = self.feeds.open("cds", (A,), "one"), self.feeds.open("cds", (A, B), "one")
        assert None not in (one.state, both.state)
        self.feeds.close(one, "one")
        assert self.set("a", x="1") == [(A, B)]
        self.feeds.close(both, "one")
        assert self.set("a", x="2") == []
        self.db.collect()
        assert (len(self.feeds), len(self.db)) == (0, nodes)

    def test_empty_feeds_of_different_types_are_distinct(self) -> None:
        clusters, listeners = self.feeds.open("cds", (), "one"), self.feeds.open("lds", (), "one")
        self.feeds.close(clusters, "one")
        assert list(listeners.readers) == ["one"]
        self.feeds.close(listeners, "one")
        assert len(self.feeds) == 0
