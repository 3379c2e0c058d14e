"""The incremental core: what fails, what goes in circles, and who is told."""

from __future__ import annotations

import pytest

from pilot.derive import UNSET, CycleError, Gather, derived, hub
from testing.mesh.number_derivations import World, keys, number, numbers, sentence, sign


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
    node = db.watch(sentence, "n00002")
    db.set("n00002", 13)
    db.refresh(node)
    assert node.value == "n00002 is +"
    assert isinstance(node.error, ValueError)
    db.ran.clear()
    with pytest.raises(ValueError, match="unlucky"):
        sentence(db, "n00002")
    assert db.ran == []
    assert [report.partition(":")[0] for report in db.reports] == ["number", "sign", "sentence"]
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


def test_what_a_circle_read_is_freed_after_it() -> None:
    db = World()
    circle, inner = db.watch(ping, "n00001"), db.watch(number, "n00001")
    db.unwatch(circle)
    db.collect()
    assert not inner.stale
    db.unwatch(inner)
    db.collect()
    assert len(db) == 0


@derived
def round_(db: World, key: str) -> str:
    return around(db, key)


@derived
def around(db: World, key: str) -> str:
    return sign(db, key) + round_(db, key)


def test_a_circle_stays_one_when_what_it_reads_comes_out_equal() -> None:
    db = World()
    node = db.watch(round_, "n00001")
    db.set("n00001", 2)
    db.refresh(node)
    assert isinstance(node.error, CycleError)


@derived
def lucky_keys(db: World) -> tuple[str, ...]:
    if db.numbers.get("n00000") == 13:
        raise ValueError("unlucky")
    return keys(db)


signs_of_lucky: Gather[str, [], str] = Gather("signs of lucky", lucky_keys, sign)


def test_a_gather_whose_keys_failed_from_the_start_has_the_items_that_were_there_before() -> None:
    db = World()
    db.set("n00000", 13)
    db.watch(sign, "n00001")
    node = db.watch(signs_of_lucky)
    assert node.value is UNSET
    db.set("n00000", 0)
    db.refresh(node)
    assert node.value == {"n00000": "-", "n00001": "+", "n00002": "+"}


@hub
def first_failure(db: World) -> int:
    return any_failing(db) + second_failure(db)


@hub
def any_failing(db: World) -> int:
    return number(db, "n00001") or 0


@hub
def second_failure(db: World) -> int:
    if any_failing(db) == 7:
        raise ValueError("seven")
    return any_failing(db)


def test_a_failure_counts_once_however_often_a_commit_comes_by() -> None:
    db = World()
    db.watch(first_failure)
    db.set("n00001", 7)
    assert sorted(db.reports) == ["first_failure: seven", "second_failure: seven"]
    assert db.failures == 2
    db.set("n00002", 7)
    assert db.failures == 2


@hub
def last(db: World) -> str:
    return max(db.numbers.all_keys())


@derived
def position(db: World) -> str:
    return last(db)


@hub
def last_number(db: World) -> int:
    """A commit that deletes the last row comes by here first: the row is gone, and what `position` reads is not looked at yet."""
    value = db.numbers.get(position(db))
    if value is None or value == 7:
        raise ValueError(f"the last number is {value}")
    return value


def test_what_a_commit_sees_half_way_is_no_failure_of_anybody() -> None:
    db = World()
    node = db.watch(last_number)
    db.set("n00004", 4)
    db.refresh(node)
    assert node.value == 4
    runs = db.runs
    db.set("n00004", None)
    assert db.ran.count(f"{last_number}()") == 2, "nothing was seen half way"
    assert db.runs > runs
    assert (node.value, node.error) == (2, None)
    assert (db.reports, db.failures) == ([], 0)


def test_of_two_failures_in_a_commit_the_one_that_stays_is_told() -> None:
    db = World()
    db.watch(last_number)
    db.commit([(db.numbers, "n00002", 7), (db.numbers, "n00004", 4)])
    assert db.reports == []
    db.set("n00004", None)
    assert db.ran.count(f"{last_number}()") == 2, "nothing was seen half way"
    assert (db.reports, db.failures) == (["last_number: the last number is 7"], 1)


@derived
def may_turn(db: World) -> int:
    return turns_back(db) if db.numbers.get("n00001") == 7 else 0


@derived
def turns_back(db: World) -> int:
    return may_turn(db) + 1


def test_a_circle_that_an_edit_closes_is_an_error_of_all_that_are_in_it() -> None:
    """The second is asked while the first runs, and has to be verified by it."""
    db = World()
    first, second = db.watch(may_turn), db.watch(turns_back)
    assert (first.value, second.value) == (0, 1)
    db.set("n00001", 7)
    db.refresh(first)
    assert isinstance(first.error, CycleError)
    assert isinstance(second.error, CycleError)
    assert not second.stale
    db.set("n00001", 1)
    db.refresh(second)
    assert (second.value, second.error, first.error) == (1, None, None)
