"""What a writer of objects by key is told of, and what it leaves behind."""

from __future__ import annotations

from typing import Any

from pilot.controllers.watched_keys import WatchedKeys
from testing.mesh.number_derivations import NumberDatabase, keys, sign


def test_keys_are_looked_at_when_they_come_and_when_their_value_may_be_another_one() -> None:
    db, told = NumberDatabase(), list[str]()
    watched: Any = WatchedKeys(db, keys, sign, told.extend)  # type: ignore[arg-type]

    def looked_at() -> list[str]:
        found = told.copy()
        told.clear()
        return found

    watched.start()
    assert looked_at() == ["n00000", "n00001", "n00002"]
    assert (len(watched), "n00000" in watched, "later" in watched) == (3, True, False)
    watched.on_commit(db.set("later", 5))
    assert (looked_at(), watched.value("later")) == (["later"], "+")
    watched.on_commit(db.set("later", -5))
    assert (looked_at(), watched.value("later")) == (["later"], "-")
    watched.on_commit(db.set("later", None))
    assert "later" not in watched
    looked_at()
    watched.resync()
    assert looked_at() == ["n00000", "n00001", "n00002"]
    watched.stop()
    db.collect()
    assert (len(watched), len(db)) == (0, 0)
