"""The incremental core: what runs again, what stops the wave, what fails, what is freed."""
from __future__ import annotations

from typing import Any

import pytest

from pilot.derive import UNSET, CycleError, Database, Gather, Table, derived, hub


class World(Database):
    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.numbers: Table[str, Any] = Table(self, "number", parity=lambda _, row: [row % 2])
        self.ran: list[str] = []
        self.on_run = lambda node: self.ran.append(f"{node.fn}{node.args}")
        self.commit([(self.numbers, f"n{i:05}", i) for i in range(count)])

    def set(self, key: str, value: Any) -> list[Any]:
        self.ran.clear()
        return self.commit([(self.numbers, key, value)])


@derived
def number(db: World, key: str) -> int | None:
    value = db.numbers.get(key)
    if value == 13:
        raise ValueError("unlucky")
    return value


@derived
def sign(db: World, key: str) -> str:
    return "+" if (number(db, key) or 0) > 0 else "-"


@derived
def sentence(db: World, key: str) -> str:
    return f"{key} is {sign(db, key)}"


@derived
def keys(db: World) -> tuple[str, ...]:
    return db.numbers.all_keys()


numbers = Gather("numbers", keys, number)


@hub
def any_positive(db: World) -> bool:
    return any((number(db, key) or 0) > 0 for key in ("n00001", "n00002"))


@derived
def rounded(db: World, key: str) -> str:
    return f"{key}: {any_positive(db)}"


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


def test_a_failing_item_keeps_its_last_good_value_and_its_neighbours_go_on() -> None:
    db = World()
    node = db.watch(numbers)
    db.commit([(db.numbers, "n00001", 13), (db.numbers, "n00002", 4), (db.numbers, "n00003", 13)])
    db.refresh(node)
    assert node.value == {"n00000": 0, "n00001": 1, "n00002": 4}
    assert (node.error, db.failures) == (None, 2)
    db.set("n00003", 5)
    db.refresh(node)
    assert node.value["n00003"] == 5


def test_a_failure_is_memoised_and_the_root_keeps_its_last_good_value() -> None:
    db = World()
    failed = []
    db.on_failure = lambda node, error: failed.append(repr(node.fn))
    node = db.watch(sentence, "n00002")
    db.set("n00002", 13)
    db.refresh(node)
    assert node.value == "n00002 is +"
    assert isinstance(node.error, ValueError)
    db.ran.clear()
    with pytest.raises(ValueError, match="unlucky"):
        sentence(db, "n00002")
    assert db.ran == []
    assert failed == ["number", "sign", "sentence"]
    db.set("n00002", -1)
    db.refresh(node)
    assert (node.value, node.error) == ("n00002 is -", None)


def test_a_failure_that_is_read_often_gathers_no_tracebacks() -> None:
    db = World()
    node = db.watch(sentence, "n00002")
    db.set("n00002", 13)
    db.refresh(node)
    depths = set()
    for _ in range(5):
        with pytest.raises(ValueError, match="unlucky") as caught:
            sentence(db, "n00002")
        depths.add(len(caught.traceback))
    assert len(depths) == 1


def test_arguments_go_by_position() -> None:
    with pytest.raises(TypeError, match="keyword argument"):
        sentence(World(), key="n00001")


def test_the_first_run_of_a_root_may_fail() -> None:
    db = World()
    db.set("n00001", 13)
    node = db.watch(number, "n00001")
    assert node.value is UNSET
    assert isinstance(node.error, ValueError)


@derived
def ping(db: World, key: str) -> int:
    return pong(db, key) if number(db, key) else 0


@derived
def pong(db: World, key: str) -> int:
    return ping(db, key) + 1


def test_a_cycle_is_an_error_that_goes_away_and_leaves_nothing() -> None:
    db = World()
    node = db.watch(ping, "n00001")
    assert isinstance(node.error, CycleError)
    assert db.set("n00001", 0) == [node]
    db.refresh(node)
    assert (node.value, node.error) == (0, None)
    db.set("n00001", 1)
    db.refresh(node)
    assert isinstance(node.error, CycleError)
    db.unwatch(node)
    db.collect()
    assert len(db) == 0


def test_reads_from_outside_are_freed() -> None:
    db = World()
    assert sentence(db, "n00001") == "n00001 is +"
    assert numbers(db) == {"n00000": 0, "n00001": 1, "n00002": 2}
    assert db.collect() == len(db.ran)
    assert len(db) == 0


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
