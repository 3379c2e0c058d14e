"""The incremental core: what runs again, what stops the wave, what is freed."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.derive import Gather, Lookup, derived, hub
from testing.mesh.number_derivations import World, keys, number, numbers, sentence, sign


@hub
def any_positive(db: World) -> bool:
    return any((number(db, key) or 0) > 0 for key in ("n00001", "n00002"))


@derived
def rounded(db: World, key: str) -> str:
    return f"{key}: {any_positive(db)}"


@derived
def parities(db: World) -> tuple[int, ...]:
    return db.numbers.buckets("parity")


@derived
def odd(db: World) -> tuple[str, ...]:
    return db.numbers.keys("parity", 1)


def test_equal_result_stops_the_wave() -> None:
    db = World()
    node = db.watch(sentence, "n00002")
    assert node.value == "n00002 is +"
    assert db.set("n00002", 7) == [node]
    db.refresh(node)
    assert db.ran == ["number('n00002',)", "number('n00002',)", "sign('n00002',)"]  # the row, its reader, the cut-off
    assert node.changed_at == 1


def test_a_hub_that_comes_out_equal_shields_its_readers() -> None:
    db = World()
    node = db.watch(rounded, "n00002")
    assert db.set("n00001", 2) == []
    assert [ran.partition("(")[0] for ran in db.ran] == ["number", "number", "any_positive"]
    assert not node.stale
    assert db.commit([(db.numbers, key, 0) for key in ("n00001", "n00002")]) == [node]
    db.refresh(node)
    assert node.value == "n00002: False"


def test_an_unrelated_row_reaches_nothing() -> None:
    db = World()
    db.watch(sentence, "n00002")
    assert db.set("n00001", 5) == []
    assert db.ran == []


def test_an_equal_row_is_no_change() -> None:
    db = World()
    db.watch(sentence, "n00002")
    assert db.set("n00002", 2) == []


def test_an_absent_row_is_a_read() -> None:
    db = World()
    node = db.watch(sentence, "later")
    assert db.set("later", 5) == [node]
    db.refresh(node)
    assert node.value == "later is +"


def test_an_index_bucket_changes_with_its_members_only() -> None:
    db = World()
    node = db.watch(odd)
    assert db.set("n00001", 3) == []
    assert db.set("n00001", 4) == [node]
    db.refresh(node)
    assert node.value == ()


def test_the_buckets_of_an_index_change_with_the_first_and_the_last_row_of_one() -> None:
    db = World(0)
    watched = db.watch(parities)
    assert parities(db) == ()
    assert db.set("a", 1) == [watched]
    assert parities(db) == (1,)
    assert db.set("b", 3) == []
    assert db.numbers.peek_keys("parity", 1) == {"a", "b"}
    assert db.set("a", None) == []
    assert db.set("b", 4) == [watched]
    assert parities(db) == (0,)


def test_a_wide_gather_runs_one_item_for_one_row() -> None:
    db = World(10_000)
    node = db.watch(numbers)
    before = node.value
    db.set("n00077", 5)
    db.refresh(node)
    assert db.ran == ["number('n00077',)", "number('n00077',)", "numbers()"]
    assert node.value is not before
    assert before["n00077"] == 77
    assert node.value == {**before, "n00077": 5}


def test_a_gather_whose_items_stay_equal_does_not_change() -> None:
    db = World()
    signs = Gather("signs", keys, sign)
    node = db.watch(signs)
    before = node.value
    db.set("n00002", 9)
    db.refresh(node)
    assert node.value is before


def test_a_gather_keeps_the_order_of_its_keys() -> None:
    db = World()
    node = db.watch(numbers)
    db.set("n000005", 9)
    db.refresh(node)
    assert list(node.value) == ["n00000", "n000005", "n00001", "n00002"]


def test_arguments_go_by_position() -> None:
    with pytest.raises(TypeError, match="keyword argument"):
        sentence(World(), key="n00001")


def test_reads_from_outside_are_freed() -> None:
    db = World()
    assert sentence(db, "n00001") == "n00001 is +"
    assert numbers(db) == {"n00000": 0, "n00001": 1, "n00002": 2}
    assert db.collect() == len(db.ran)
    assert len(db) == 0


def test_what_is_freed_in_steps_may_be_read_and_changed_in_between() -> None:
    db = World()
    watched = db.watch(sentence, "n00001")
    numbers(db)
    sentence(db, "n00002")
    every, steps = len(db), 0
    while db.collect_some(1):
        steps += 1
        if steps == 3:
            assert sentence(db, "n00002") == "n00002 is +"
        if steps == 5:
            db.set("n00001", -1)
            db.refresh(watched)
    assert steps > 6
    assert watched.value == "n00001 is -"
    assert len(db) < every
    assert db.collect() == 0
    assert numbers(db) == {"n00000": 0, "n00001": -1, "n00002": 2}
    assert sentence(db, "n00002") == "n00002 is +"


def test_an_item_that_a_gather_no_longer_lists_is_freed() -> None:
    db = World()
    node = db.watch(numbers)
    db.set("n00001", None)
    db.refresh(node)
    assert node.value == {"n00000": 0, "n00002": 2}
    assert db.collect() == 2  # the item and its row


def test_a_node_is_once_among_the_readers_of_what_it_reads_again() -> None:
    db = World()
    node = db.watch(sentence, "n00001")
    for value in (-1, 1, -1):
        db.set("n00001", value)
        db.refresh(node)
        assert [list(source.readers) for source in node.deps] == [[node]]


@hub
def total(db: World) -> int:
    return sum(number(db, key) or 0 for key in db.numbers.all_keys())


@derived
def total_or_sign(db: World) -> str:
    return f"total {total(db)}" if number(db, "n00000") == 0 else sign(db, "n00001")


def ran(db: World) -> list[str]:
    return [run.partition("(")[0] for run in db.ran]


def test_what_nobody_reads_any_more_is_not_brought_up_to_date_while_it_waits() -> None:
    db = World()
    node = db.watch(total_or_sign)
    db.set("n00000", 1)
    db.refresh(node)
    assert node.value == "+"
    db.set("n00002", 7)
    assert db.ran == []
    freed = db.collect()
    assert freed == 4  # the hub, the list of keys, one number and its row
    assert db.collect() == 0


def test_a_hub_that_a_reader_of_what_changed_reads_is_asked_before_its_reader() -> None:
    db = World()
    node = db.watch(total_or_sign)
    assert db.commit([(db.numbers, "n00000", 1), (db.numbers, "n00001", 0)]) == [node]
    db.refresh(node)
    assert node.value == "-"


def test_what_is_read_again_before_it_is_freed_is_verified_and_not_run() -> None:
    db = World()
    node = db.watch(total_or_sign)
    db.set("n00000", 1)
    db.refresh(node)
    db.set("n00003", None)
    db.set("n00000", 0)
    db.refresh(node)
    assert node.value == "total 3"
    assert ran(db) == [
        "number",
        "number",
        "total",
        "total_or_sign",
    ]  # the row, its reader, and the hub because of that row
    db.ran.clear()
    assert total(db) == 3
    assert db.ran == []
    assert db.collect() == 1  # the sign, which no longer counts; total reads what it read


def test_a_value_that_is_read_from_outside_is_not_computed_again_after_other_changes() -> None:
    db = World()
    assert sentence(db, "n00001") == "n00001 is +"
    db.set("n00002", 9)
    assert sentence(db, "n00001") == "n00001 is +"
    assert db.ran == []
    db.set("n00001", -1)
    assert sentence(db, "n00001") == "n00001 is -"
    assert ran(db) == ["number", "number", "sign", "sentence"]


def test_a_gather_that_is_read_from_outside_runs_the_items_that_changed() -> None:
    db = World()
    assert numbers(db) == {"n00000": 0, "n00001": 1, "n00002": 2}
    db.commit([(db.numbers, "n00001", 5), (db.numbers, "n00002", None)])
    db.ran.clear()
    assert numbers(db) == {"n00000": 0, "n00001": 5}
    assert "number('n00000',)" not in db.ran


def test_a_held_node_is_kept_and_followed_when_its_watcher_goes() -> None:
    db = World()
    node = db.watch(sentence, "n00001")
    db.hold(node)
    db.unwatch(node)
    assert db.collect() == 0
    assert db.set("n00001", -1) == [node]
    db.unwatch(node)
    assert db.collect() == len(db.ran) + 4


def test_a_node_that_waits_to_be_freed_can_be_held_again() -> None:
    db = World()
    node = db.watch(sentence, "n00001")
    db.unwatch(node)
    db.set("n00001", -1)
    db.hold(node)
    assert node.value == "n00001 is -"
    assert db.collect() == 0
    assert db.set("n00001", 1) == [node]


def test_the_row_of_a_deleted_key_is_gone_from_every_list_of_keys() -> None:
    db = World()
    listed, odds = db.watch(keys), db.watch(odd)
    assert set(db.set("n00001", None)) == {listed, odds}
    for node in (listed, odds):
        db.refresh(node)
    assert (listed.value, odds.value) == (("n00000", "n00002"), ())
    assert "n00001" not in dict(db.numbers.rows())


@derived
def falling(db: World) -> tuple[str, ...]:
    return tuple(sorted(db.numbers.all_keys(), key=lambda key: -(db.numbers.get(key) or 0)))


by_size: Gather[str, [], str] = Gather("by_size", falling, sign)


def test_a_gather_whose_keys_only_change_their_order_is_another_value() -> None:
    db = World()
    node = db.watch(by_size)
    before = node.value
    assert list(before) == ["n00002", "n00001", "n00000"]
    db.set("n00001", 9)
    db.refresh(node)
    assert list(node.value) == ["n00001", "n00002", "n00000"]
    assert node.value == before
    assert node.changed_at == db.revision


def test_a_watched_node_is_reported_once_until_it_is_refreshed() -> None:
    db = World()
    node = db.watch(sentence, "n00001")
    assert db.set("n00001", 4) == [node]
    assert db.set("n00001", 5) == []
    db.refresh(node)
    assert db.set("n00001", 6) == [node]


def test_a_derivation_cannot_write() -> None:
    @derived
    def writes(db: World) -> list[Any]:
        return db.commit([])

    db = World()
    with pytest.raises(RuntimeError, match="must not write"):
        writes(db)


looked_up: Lookup[str, [frozenset[str]], int] = Lookup("looked_up", number)


def test_lookups_share_the_items_of_keys_that_they_have_in_common() -> None:
    world = World()
    world.ran.clear()
    one, two = (
        world.watch(looked_up, frozenset({"n00000", "n00001"})),
        world.watch(looked_up, frozenset({"n00001", "n00002", "n00009"})),
    )
    assert (one.value, two.value) == ({"n00000": 0, "n00001": 1}, {"n00001": 1, "n00002": 2})
    assert world.ran.count("number('n00001',)") == 2, "its row and its item once"
    assert set(world.set("n00001", 5)) == {one, two}
    world.refresh(two)
    assert world.set("n00009", 9) == [two]
    world.refresh(two)
    assert (list(two.value), two.value["n00009"]) == (["n00001", "n00002", "n00009"], 9)
    nodes = len(world)
    world.unwatch(two)
    world.collect()
    assert world.set("n00002", 7) == []
    assert len(world) < nodes
    world.refresh(one)
    assert one.value == {"n00000": 0, "n00001": 5}


@derived
def ranks(db: World) -> dict[str, int]:
    found = {key: number(db, key) or 0 for key in db.numbers.all_keys()}
    return dict.fromkeys(sorted(found, key=lambda key: found[key]), 0)


@derived
def in_line(db: World) -> str:
    return " ".join(ranks(db))


def test_a_mapping_in_another_order_is_another_value() -> None:
    world = World()
    node = world.watch(in_line)
    assert world.set("n00000", 9) == [node]
    assert in_line(world) == "n00001 n00002 n00000"
