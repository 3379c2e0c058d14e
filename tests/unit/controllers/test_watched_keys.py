"""Notifications of watched keys, and their cleanup."""

from __future__ import annotations

from typing import Any

from pilot.controllers.watched_keys import WatchedKeys
from testing.mesh.number_derivations import NumberDatabase, keys, sign


def test_new_and_changed_keys_are_notified() -> None:
    db, notified = NumberDatabase(), list[str]()
    watched: Any = WatchedKeys(db, keys, sign, notified.extend)  # type: ignore[arg-type]

    def notifications() -> list[str]:
        copy = notified.copy()
        notified.clear()
        return copy

    watched.start()
    assert notifications() == ["n00000", "n00001", "n00002"]
    assert (len(watched), "n00000" in watched, "later" in watched) == (3, True, False)
    watched.on_commit(db.set("later", 5))
    assert (notifications(), watched.value("later")) == (["later"], "+")
    watched.on_commit(db.set("later", -5))
    assert (notifications(), watched.value("later")) == (["later"], "-")
    watched.on_commit(db.set("later", None))
    assert "later" not in watched
    notifications()
    watched.resync()
    assert notifications() == ["n00000", "n00001", "n00002"]
    watched.stop()
    db.collect()
    assert (len(watched), len(db)) == (0, 0)
