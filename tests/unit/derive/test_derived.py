"""Incremental derivation: reruns, early cut-off and collection."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.derive import Gather, Lookup, derived, hub, updated
from testing.mesh.number_derivations import NumberDatabase, keys, number, numbers, sentence, sign


@hub
def any_positive(db: NumberDatabase) -> bool:
    return any((number(db, key) or 0) > 0 for key in ("n00001", "n00002"))


@derived
def positive_text(db: NumberDatabase, key: str) -> str:
    return f"{key}: {any_positive(db)}"


@derived
def parities(db: NumberDatabase) -> tuple[int, ...]:
    return db.numbers.buckets("parity")


@derived
def odd(db: NumberDatabase) -> tuple[str, ...]:
    return db.numbers.keys("parity", 1)


def test_equal_result_stops_propagation() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00002")
    assert node.value == "n00002 is +"
    assert db.set("n00002", 7) == [node]
    db.refresh(node)
    assert db.ran == ["number('n00002',)", "number('n00002',)", "sign('n00002',)"]  # the row, its reader, the cut-off
    assert node.changed_at == 1


def test_equal_hub_value_does_not_reach_its_readers() -> None:
    db = NumberDatabase()
    node = db.watch(positive_text, "n00002")
    assert db.set("n00001", 2) == []
    assert [run_names.partition("(")[0] for run_names in db.ran] == ["number", "number", "any_positive"]
    assert not node.stale
    assert db.commit([(db.numbers, key, 0) for key in ("n00001", "n00002")]) == [node]
    db.refresh(node)
    assert node.value == "n00002: False"


def test_unrelated_row_reaches_nothing() -> None:
    db = NumberDatabase()
    db.watch(sentence, "n00002")
    assert db.set("n00001", 5) == []
    assert db.ran == []


def test_equal_row_is_no_change() -> None:
    db = NumberDatabase()
    db.watch(sentence, "n00002")
    assert db.set("n00002", 2) == []


def test_missing_row_is_a_dependency() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "later")
    assert db.set("later", 5) == [node]
    db.refresh(node)
    assert node.value == "later is +"


def test_index_bucket_changes_only_with_its_members() -> None:
    db = NumberDatabase()
    node = db.watch(odd)
    assert db.set("n00001", 3) == []
    assert db.set("n00001", 4) == [node]
    db.refresh(node)
    assert node.value == ()


def test_index_buckets_change_with_first_and_last_row() -> None:
    db = NumberDatabase(0)
    node = db.watch(parities)
    assert parities(db) == ()
    assert db.set("a", 1) == [node]
    assert parities(db) == (1,)
    assert db.set("b", 3) == []
    assert db.numbers.peek_keys("parity", 1) == {"a", "b"}
    assert db.set("a", None) == []
    assert db.set("b", 4) == [node]
    assert parities(db) == (0,)


def test_gather_reruns_only_the_changed_item() -> None:
    db = NumberDatabase(10_000)
    node = db.watch(numbers)
    before = node.value
    db.set("n00077", 5)
    db.refresh(node)
    assert db.ran == ["number('n00077',)", "number('n00077',)", "numbers()"]
    assert node.value is not before
    assert before["n00077"] == 77
    assert node.value == {**before, "n00077": 5}


def test_gather_with_equal_items_does_not_change() -> None:
    db = NumberDatabase()
    signs = Gather("signs", keys, sign)
    node = db.watch(signs)
    before = node.value
    db.set("n00002", 9)
    db.refresh(node)
    assert node.value is before


def test_gather_keeps_key_order() -> None:
    db = NumberDatabase()
    node = db.watch(numbers)
    db.set("n000005", 9)
    db.refresh(node)
    assert list(node.value) == ["n00000", "n000005", "n00001", "n00002"]


def test_keyword_arguments_are_rejected() -> None:
    with pytest.raises(TypeError, match="keyword argument"):
        sentence(NumberDatabase(), key="n00001")


def test_unwatched_reads_are_freed() -> None:
    db = NumberDatabase()
    assert sentence(db, "n00001") == "n00001 is +"
    assert numbers(db) == {"n00000": 0, "n00001": 1, "n00002": 2}
    assert db.collect() == len(db.ran)
    assert len(db) == 0


def test_reads_and_commits_between_collection_steps() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00001")
    numbers(db)
    sentence(db, "n00002")
    initial_size, steps = len(db), 0
    while db.collect_some(1):
        steps += 1
        if steps == 3:
            assert sentence(db, "n00002") == "n00002 is +"
        if steps == 5:
            db.set("n00001", -1)
            db.refresh(node)
    assert steps > 6
    assert node.value == "n00001 is -"
    assert len(db) < initial_size
    assert db.collect() == 0
    assert numbers(db) == {"n00000": 0, "n00001": -1, "n00002": 2}
    assert sentence(db, "n00002") == "n00002 is +"


def test_removed_gather_item_is_freed() -> None:
    db = NumberDatabase()
    node = db.watch(numbers)
    db.set("n00001", None)
    db.refresh(node)
    assert node.value == {"n00000": 0, "n00002": 2}
    assert db.collect() == 2  # the item and its row


def test_node_is_registered_once_as_reader() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00001")
    for value in (-1, 1, -1):
        db.set("n00001", value)
        db.refresh(node)
        assert [list(source.readers) for source in node.deps] == [[node]]


@hub
def total(db: NumberDatabase) -> int:
    return sum(number(db, key) or 0 for key in db.numbers.all_keys())


@derived
def total_or_sign(db: NumberDatabase) -> str:
    return f"total {total(db)}" if number(db, "n00000") == 0 else sign(db, "n00001")


def run_names(db: NumberDatabase) -> list[str]:
    return [run.partition("(")[0] for run in db.ran]


def test_unread_hub_is_not_refreshed() -> None:
    db = NumberDatabase()
    node = db.watch(total_or_sign)
    db.set("n00000", 1)
    db.refresh(node)
    assert node.value == "+"
    db.set("n00002", 7)
    assert db.ran == []
    node_count = db.collect()
    assert node_count == 4  # the hub, the list of keys, one number and its row
    assert db.collect() == 0


def test_hub_is_refreshed_before_its_reader() -> None:
    db = NumberDatabase()
    node = db.watch(total_or_sign)
    assert db.commit([(db.numbers, "n00000", 1), (db.numbers, "n00001", 0)]) == [node]
    db.refresh(node)
    assert node.value == "-"


def test_node_reread_before_collection_is_verified_without_a_run() -> None:
    db = NumberDatabase()
    node = db.watch(total_or_sign)
    db.set("n00000", 1)
    db.refresh(node)
    db.set("n00003", None)
    db.set("n00000", 0)
    db.refresh(node)
    assert node.value == "total 3"
    assert run_names(db) == [
        "number",
        "number",
        "total",
        "total_or_sign",
    ]  # the row, its reader, and the hub because of that row
    db.ran.clear()
    assert total(db) == 3
    assert db.ran == []
    assert db.collect() == 1  # the sign, which is no longer read; total still reads the others


def test_unwatched_value_survives_unrelated_changes() -> None:
    db = NumberDatabase()
    assert sentence(db, "n00001") == "n00001 is +"
    db.set("n00002", 9)
    assert sentence(db, "n00001") == "n00001 is +"
    assert db.ran == []
    db.set("n00001", -1)
    assert sentence(db, "n00001") == "n00001 is -"
    assert run_names(db) == ["number", "number", "sign", "sentence"]


def test_unwatched_gather_reruns_changed_items() -> None:
    db = NumberDatabase()
    assert numbers(db) == {"n00000": 0, "n00001": 1, "n00002": 2}
    db.commit([(db.numbers, "n00001", 5), (db.numbers, "n00002", None)])
    db.ran.clear()
    assert numbers(db) == {"n00000": 0, "n00001": 5}
    assert "number('n00000',)" not in db.ran


def test_held_node_survives_its_watcher() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00001")
    db.hold(node)
    db.unwatch(node)
    assert db.collect() == 0
    assert db.set("n00001", -1) == [node]
    db.unwatch(node)
    assert db.collect() == len(db.ran) + 4


def test_node_pending_collection_can_be_held_again() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00001")
    db.unwatch(node)
    db.set("n00001", -1)
    db.hold(node)
    assert node.value == "n00001 is -"
    assert db.collect() == 0
    assert db.set("n00001", 1) == [node]


def test_deleted_row_leaves_every_key_list() -> None:
    db = NumberDatabase()
    key_list, odds = db.watch(keys), db.watch(odd)
    assert set(db.set("n00001", None)) == {key_list, odds}
    for node in (key_list, odds):
        db.refresh(node)
    assert (key_list.value, odds.value) == (("n00000", "n00002"), ())
    assert "n00001" not in dict(db.numbers.rows())


@derived
def falling(db: NumberDatabase) -> tuple[str, ...]:
    return tuple(sorted(db.numbers.all_keys(), key=lambda key: -(db.numbers.get(key) or 0)))


by_size: Gather[str, [], str] = Gather("by_size", falling, sign)


def test_gather_key_order_is_part_of_its_value() -> None:
    db = NumberDatabase()
    node = db.watch(by_size)
    before = node.value
    assert list(before) == ["n00002", "n00001", "n00000"]
    db.set("n00001", 9)
    db.refresh(node)
    assert list(node.value) == ["n00001", "n00002", "n00000"]
    assert node.value == before
    assert node.changed_at == db.revision


def test_watched_node_is_reported_once_until_refreshed() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00001")
    assert db.set("n00001", 4) == [node]
    assert db.set("n00001", 5) == []
    db.refresh(node)
    assert db.set("n00001", 6) == [node]


def test_derivation_cannot_write() -> None:
    @derived
    def writes(db: NumberDatabase) -> list[Any]:
        return db.commit([])

    db = NumberDatabase()
    with pytest.raises(RuntimeError, match="must not write"):
        writes(db)


number_lookup: Lookup[str, [frozenset[str]], int] = Lookup("looked_up", number)


def test_lookups_share_items_of_common_keys() -> None:
    world = NumberDatabase()
    world.ran.clear()
    first, second = (
        world.watch(number_lookup, frozenset({"n00000", "n00001"})),
        world.watch(number_lookup, frozenset({"n00001", "n00002", "n00009"})),
    )
    assert (first.value, second.value) == ({"n00000": 0, "n00001": 1}, {"n00001": 1, "n00002": 2})
    assert world.ran.count("number('n00001',)") == 2, "its row and its item once"
    assert set(world.set("n00001", 5)) == {first, second}
    world.refresh(second)
    assert world.set("n00009", 9) == [second]
    world.refresh(second)
    assert (list(second.value), second.value["n00009"]) == (["n00001", "n00002", "n00009"], 9)
    nodes = len(world)
    world.unwatch(second)
    world.collect()
    assert world.set("n00002", 7) == []
    assert len(world) < nodes
    world.refresh(first)
    assert first.value == {"n00000": 0, "n00001": 5}


@derived
def ranks(db: NumberDatabase) -> dict[str, int]:
    values = {key: number(db, key) or 0 for key in db.numbers.all_keys()}
    return dict.fromkeys(sorted(values, key=lambda key: values[key]), 0)


@derived
def ordered_keys(db: NumberDatabase) -> str:
    return " ".join(ranks(db))


def test_mapping_order_is_part_of_its_value() -> None:
    world = NumberDatabase()
    node = world.watch(ordered_keys)
    assert world.set("n00000", 9) == [node]
    assert ordered_keys(world) == "n00001 n00002 n00000"


@updated
def signs_seen(db: NumberDatabase, previous: tuple[str, ...] | None, key: str) -> tuple[str, ...]:
    return (*(previous or ()), sign(db, key))


def test_updated_value_is_computed_from_the_previous_one() -> None:
    db = NumberDatabase()
    node = db.watch(signs_seen, "n00002")
    assert node.value == ("+",)
    db.set("n00002", -1)
    db.refresh(node)
    assert node.value == ("+", "-")
    db.set("n00002", 5)
    assert signs_seen(db, "n00002") == ("+", "-", "+")


def test_key_list_is_sorted_after_few_and_many_changes() -> None:
    db, rng = NumberDatabase(), random.Random(3)
    names = [f"k{n:05}" for n in range(300)]
    node = db.watch(keys)
    for count in (1, 200, 3, 1, 100, 40, 2, 32, 33):
        changed = rng.sample(names, count)
        db.commit([(db.numbers, name, None if name in node.value else 1) for name in changed])
        db.refresh(node)
        assert list(node.value) == sorted(key for key, _ in db.numbers.rows())
    db.commit([(db.numbers, "k00300", 1)])
    db.commit([(db.numbers, "k00300", None)])
    db.refresh(node)
    assert "k00300" not in node.value
