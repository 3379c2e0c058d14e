"""Collections: rows of a table and derived rows, read as one table."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.derive import Collection, Database, Gather, Table, derived
from pilot.derive.explanation import explain

Row = tuple[str, int]


class World(Database):
    """A database where `words` holds rows of the collection and each pair in `pairs` yields two more."""

    def __init__(self, pairs: int = 3) -> None:
        super().__init__()
        self.words: Table[str, Row] = Table(self, "word", initial=lambda _, row: [row[0][0]])
        self.pairs: Table[str, tuple[Row, Row]] = Table(self, "pair")
        self.ran: list[str] = []
        self.commit([(self.pairs, f"p{i}", ((f"a{i}", i), (f"b{i}", i))) for i in range(pairs)])

    def set(self, table: Any, key: str, row: Any) -> list[Any]:
        self.ran.clear()
        return self.commit([(table, key, row)])


@derived
def pair_keys(db: World) -> tuple[str, ...]:
    return db.pairs.all_keys()


@derived
def rows_of_pair(db: World, key: str) -> dict[str, Row] | None:
    pair = db.pairs.get(key)
    if pair is None:
        return None
    return {f"{key}/{side}": row for side, row in zip("lr", pair, strict=True)}


by_pair = Gather("by_pair", pair_keys, rows_of_pair)


@derived
def rows_of_pairs(db: World) -> dict[str, Row]:
    rows = {key: row for rows in by_pair(db).values() for key, row in rows.items()}
    if ("bad", 0) in rows.values():
        raise ValueError("bad pair")
    return rows


@derived
def spare_rows(db: World) -> dict[str, Row]:
    return {"p0/l": ("spare", 0), "spare": ("spare", 1)}


words: Collection[str, Row] = Collection("word", "word")
words.add_source(rows_of_pairs)
words.add_source(spare_rows)
only_table: Collection[str, Row] = Collection("word", "word")
disabled_source: Collection[str, Row] = Collection("word", "word")
disabled_source.add_source(rows_of_pairs, enabled=lambda db: False)


@derived
def row(db: World, key: str) -> Row | None:
    db.ran.append(f"row {key}")
    return words.get(db, key)


@derived
def bucket(db: World, initial: str) -> tuple[str, ...]:
    db.ran.append(f"bucket {initial}")
    return words.keys(db, "initial", initial)


@derived
def initials(db: World) -> tuple[str, ...]:
    db.ran.append("initials")
    return words.buckets(db, "initial")


@derived
def every(db: World) -> tuple[str, ...]:
    db.ran.append("every")
    return words.all_keys(db)


def watch_all(db: World) -> dict[str, Any]:
    keys = ("p0/l", "p0/r", "p1/l", "p1/r", "w", "spare")
    nodes = {key: db.watch(row, key) for key in keys} | {name: db.watch(bucket, name) for name in "abs"}
    nodes |= {"every": db.watch(every), "initials": db.watch(initials)}
    db.ran.clear()
    return nodes


def refresh(db: World, nodes: dict[str, Any]) -> list[str]:
    for node in nodes.values():
        db.refresh(node)
    return sorted(db.ran)


def test_table_rows_precede_source_rows_in_order() -> None:
    db = World()
    db.commit([(db.words, "w", ("above", 1)), (db.words, "p1/r", ("own", 1))])
    assert words.get(db, "w") == ("above", 1)
    assert words.get(db, "p1/l") == ("a1", 1)
    assert words.get(db, "p1/r") == ("own", 1)
    assert words.get(db, "p0/l") == ("a0", 0)
    assert words.get(db, "spare") == ("spare", 1)
    assert words.get(db, "none") is None
    assert words.all_keys(db) == ("p0/l", "p0/r", "p1/l", "p1/r", "p2/l", "p2/r", "spare", "w")


def test_bucket_keys_are_sorted_without_shadowed_rows() -> None:
    db = World()
    db.commit([(db.words, "p1/r", ("own", 1)), (db.words, "p1/la", ("above", 1))])
    assert words.keys(db, "initial", "a") == ("p0/l", "p1/l", "p1/la", "p2/l")
    assert words.keys(db, "initial", "b") == ("p0/r", "p2/r")
    assert words.keys(db, "initial", "s") == ("spare",)
    assert words.keys(db, "initial", "z") == ()


def test_index_buckets_cover_all_sources() -> None:
    db = World(1)
    nodes = watch_all(db)
    assert nodes["initials"].value == ("a", "b", "s") == words.buckets(db, "initial")
    assert only_table.buckets(db, "initial") == ()
    db.set(db.words, "p0/r", ("zero", 1))
    assert refresh(db, nodes) == ["bucket b", "initials", "row p0/r"]
    assert nodes["initials"].value == ("a", "s", "z")
    db.set(db.pairs, "p0", (("c0", 1), ("b0", 1)))
    refresh(db, nodes)
    assert nodes["initials"].value == ("c", "s", "z")


def test_derived_row_change_reaches_only_its_readers() -> None:
    db = World()
    nodes = watch_all(db)
    assert set(db.set(db.pairs, "p1", (("a9", 1), ("b1", 1)))) == {nodes["p1/l"]}
    assert refresh(db, nodes) == ["row p1/l"]
    assert nodes["p1/l"].value == ("a9", 1)


def test_derived_row_that_changes_bucket_reaches_both_buckets() -> None:
    db = World()
    nodes = watch_all(db)
    assert set(db.set(db.pairs, "p1", (("a1", 1), ("s1", 1)))) == {nodes["p1/r"], nodes["b"], nodes["s"]}
    assert refresh(db, nodes) == ["bucket b", "bucket s", "row p1/r"]
    assert nodes["b"].value == ("p0/r", "p2/r")
    assert nodes["s"].value == ("p1/r", "spare")


def test_added_or_removed_derived_row_reaches_the_key_list() -> None:
    db = World()
    nodes = watch_all(db)
    db.set(db.pairs, "p1", None)
    assert refresh(db, nodes) == ["bucket a", "bucket b", "every", "row p1/l", "row p1/r"]
    assert nodes["p1/l"].value is None
    db.set(db.pairs, "p1", (("a1", 1), ("b1", 1)))
    assert refresh(db, nodes) == ["bucket a", "bucket b", "every", "row p1/l", "row p1/r"]
    assert nodes["a"].value == ("p0/l", "p1/l", "p2/l")


def test_table_row_that_shadows_a_derived_row_reaches_its_readers() -> None:
    db = World()
    nodes = watch_all(db)
    db.set(db.words, "p1/l", ("zero", 1))
    refresh(db, nodes)
    assert nodes["p1/l"].value == ("zero", 1)
    assert nodes["a"].value == ("p0/l", "p2/l")
    assert "row p1/r" not in db.ran
    db.set(db.words, "p1/l", None)
    refresh(db, nodes)
    assert nodes["p1/l"].value == ("a1", 1)
    assert nodes["a"].value == ("p0/l", "p1/l", "p2/l")


def test_equal_derived_rows_reach_no_reader() -> None:
    db = World()
    nodes = watch_all(db)
    rows = rows_of_pairs(db)
    assert db.set(db.pairs, "p9", None) == []
    assert db.commit([(db.pairs, "p1", (("a1", 1.0), ("b1", 1)))]) == []
    assert refresh(db, nodes) == []
    assert rows_of_pairs(db) == rows


def test_equal_row_of_the_next_source_reaches_no_reader() -> None:
    db = World()
    nodes = watch_all(db)
    db.set(db.pairs, "p0", (("spare", 0.0), ("b0", 0)))  # an equal row, but another object
    refresh(db, nodes)
    assert nodes["p0/l"] not in db.set(db.pairs, "p0", None)
    assert nodes["p0/l"].value == words.get(db, "p0/l") == ("spare", 0)


def test_touch_changed_compares_with_any_earlier_rows() -> None:
    db = World()
    nodes = watch_all(db)
    rows = next(node for node in db.live_nodes() if str(node.fn) == "derived words")
    before = rows.value
    db.set(db.pairs, "p1", (("c1", 1), ("b1", 1)))
    db.set(db.pairs, "p2", (("a2", 3), ("b2", 2)))
    refresh(db, nodes)
    touched = {node.args for node in words.touch_changed(db, before, rows.value)}
    assert touched == {("p1/l",), ("initial", "a"), ("initial", "c"), ("initial",)}  # that of p2/l has no node
    assert {node.args for node in words.touch_changed(db, rows.value, rows.value)} == set()


@derived
def first_of_pair(db: World, key: str) -> Row | None:
    pair = db.pairs.get(key)
    return None if pair is None else pair[0]


firsts_of_pairs: Gather[str, [], Row] = Gather("lefts of pairs", pair_keys, first_of_pair)
firsts: Collection[str, Row] = Collection("left", "word")
firsts.add_source(firsts_of_pairs)


def test_all_gather_changes_since_the_last_read_are_included() -> None:
    db = World()
    node = db.watch(firsts_of_pairs)
    assert [firsts.get(db, f"p{i}") for i in range(3)] == [("a0", 0), ("a1", 1), ("a2", 2)]
    for key in ("p1", "p2"):
        db.set(db.pairs, key, (("new", 9), ("b", 9)))
        db.refresh(node)
    assert [firsts.get(db, f"p{i}") for i in range(3)] == [("a0", 0), ("new", 9), ("new", 9)]


def test_one_derived_row_change_reruns_one_reader() -> None:
    db = World(500)
    runs: list[str] = []
    nodes = [db.watch(row, f"p{i}/{side}") for i in range(500) for side in "lr"]
    db.on_run = lambda node: runs.append(repr(node.fn))
    db.set(db.pairs, "p7", (("a7", 8), ("b7", 7)))
    for node in nodes:
        db.refresh(node)
    assert sorted(runs) == sorted(
        ["pair", "rows_of_pair", "by_pair", "rows_of_pairs", "derived words", "derived word", "row"]
    )


def test_failing_source_fails_its_readers_until_it_recovers() -> None:
    db = World()
    nodes = watch_all(db)
    db.set(db.pairs, "p1", (("bad", 0), ("b1", 1)))
    refresh(db, nodes)
    assert all(isinstance(node.error, ValueError) for node in nodes.values())
    assert nodes["p0/l"].value == ("a0", 0)
    db.set(db.pairs, "p1", (("a1", 2), ("b1", 1)))
    refresh(db, nodes)
    assert [node.error for node in nodes.values()] == [None] * len(nodes)
    assert nodes["p1/l"].value == ("a1", 2)


def test_source_that_failed_initially_is_read_after_recovery() -> None:
    db = World()
    db.set(db.pairs, "p1", (("bad", 0), ("b1", 1)))
    node = db.watch(row, "p0/l")
    assert isinstance(node.error, ValueError)
    assert db.set(db.pairs, "p1", None) == [node]
    db.refresh(node)
    assert (node.value, node.error) == (("a0", 0), None)


def test_table_row_is_readable_if_a_source_fails() -> None:
    db = World()
    db.commit([(db.words, "w", ("above", 1)), (db.pairs, "p1", (("bad", 0), ("b1", 1)))])
    assert words.get(db, "w") == ("above", 1)
    with pytest.raises(ValueError, match="bad pair"):
        words.get(db, "p0/l")


@pytest.mark.parametrize("collection", [only_table, disabled_source])
def test_reads_without_sources_use_only_the_table(collection: Collection[str, Row]) -> None:
    db = World()
    db.commit([(db.words, "w", ("above", 1))])
    assert collection.get(db, "w") == ("above", 1)
    assert collection.keys(db, "initial", "a") == ("w",)
    assert collection.all_keys(db) == ("w",)
    assert {node.fn.__name__ for node in db.live_nodes()} == {"word", "word by", "every word"}
    assert len(db) == 3


def test_unread_nodes_are_freed() -> None:
    db = World()
    nodes = watch_all(db)
    for node in nodes.values():
        db.unwatch(node)
    db.collect()
    assert len(db) == 0


def test_explanation_of_a_derived_row() -> None:
    db = World()
    node = db.watch(row, "p1/r")
    assert [(reason.table, reason.key) for reason in explain(db, node).rows] == [("pair", "p1")]
    assert [(reason.table, reason.key) for reason in explain(db, db.watch(row, "none")).rows] == []


def test_explanation_of_a_missing_row_is_empty() -> None:
    db = World()
    assert explain(db, db.watch(row, "nobody's")) == ((), ())
