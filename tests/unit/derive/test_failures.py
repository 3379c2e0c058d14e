"""Incremental derivation: failures and cycles."""

from __future__ import annotations

import pytest

from pilot.derive import UNSET, CycleError, Gather, derived, hub
from testing.mesh.number_derivations import NumberDatabase, keys, number, numbers, sentence, sign


def test_failing_item_keeps_its_last_good_value() -> None:
    db = NumberDatabase()
    node = db.watch(numbers)
    db.commit([(db.numbers, "n00001", 13), (db.numbers, "n00002", 4), (db.numbers, "n00003", 13)])
    db.refresh(node)
    assert node.value == {"n00000": 0, "n00001": 1, "n00002": 4}
    assert (node.error, db.failures) == (None, 2)
    db.set("n00003", 5)
    db.refresh(node)
    assert node.value["n00003"] == 5


def test_failure_is_memoised_and_the_root_keeps_its_value() -> None:
    db = NumberDatabase()
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


def test_repeated_reads_of_a_failure_do_not_grow_its_traceback() -> None:
    db = NumberDatabase()
    node = db.watch(sentence, "n00002")
    db.set("n00002", 13)
    db.refresh(node)
    depths = set()
    for _ in range(5):
        with pytest.raises(ValueError, match="unlucky") as caught:
            sentence(db, "n00002")
        depths.add(len(caught.traceback))
    assert len(depths) == 1


def test_root_can_fail_on_its_first_run() -> None:
    db = NumberDatabase()
    db.set("n00001", 13)
    node = db.watch(number, "n00001")
    assert node.value is UNSET
    assert isinstance(node.error, ValueError)


@derived
def ping(db: NumberDatabase, key: str) -> int:
    return pong(db, key) if number(db, key) else 0


@derived
def pong(db: NumberDatabase, key: str) -> int:
    return ping(db, key) + 1


def test_cycle_is_an_error_that_can_recover() -> None:
    db = NumberDatabase()
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


def test_dependencies_of_a_cycle_are_freed() -> None:
    db = NumberDatabase()
    cycle, dependency = db.watch(ping, "n00001"), db.watch(number, "n00001")
    db.unwatch(cycle)
    db.collect()
    assert not dependency.stale
    db.unwatch(dependency)
    db.collect()
    assert len(db) == 0


@derived
def cycle_start(db: NumberDatabase, key: str) -> str:
    return cycle_end(db, key)


@derived
def cycle_end(db: NumberDatabase, key: str) -> str:
    return sign(db, key) + cycle_start(db, key)


def test_cycle_persists_when_its_inputs_stay_equal() -> None:
    db = NumberDatabase()
    node = db.watch(cycle_start, "n00001")
    db.set("n00001", 2)
    db.refresh(node)
    assert isinstance(node.error, CycleError)


@derived
def lucky_keys(db: NumberDatabase) -> tuple[str, ...]:
    if db.numbers.get("n00000") == 13:
        raise ValueError("unlucky")
    return keys(db)


signs_of_lucky: Gather[str, [], str] = Gather("signs of lucky", lucky_keys, sign)


def test_gather_recovers_from_initially_failing_keys() -> None:
    db = NumberDatabase()
    db.set("n00000", 13)
    db.watch(sign, "n00001")
    node = db.watch(signs_of_lucky)
    assert node.value is UNSET
    db.set("n00000", 0)
    db.refresh(node)
    assert node.value == {"n00000": "-", "n00001": "+", "n00002": "+"}


@hub
def first_failure(db: NumberDatabase) -> int:
    return any_failing(db) + second_failure(db)


@hub
def any_failing(db: NumberDatabase) -> int:
    return number(db, "n00001") or 0


@hub
def second_failure(db: NumberDatabase) -> int:
    if any_failing(db) == 7:
        raise ValueError("seven")
    return any_failing(db)


def test_failure_is_counted_once() -> None:
    db = NumberDatabase()
    db.watch(first_failure)
    db.set("n00001", 7)
    assert sorted(db.reports) == ["first_failure: seven", "second_failure: seven"]
    assert db.failures == 2
    db.set("n00002", 7)
    assert db.failures == 2


@hub
def last(db: NumberDatabase) -> str:
    return max(db.numbers.all_keys())


@hub
def same_last(db: NumberDatabase) -> str:
    return last(db)


@derived
def position(db: NumberDatabase) -> str:
    return same_last(db)


@hub
def last_number(db: NumberDatabase) -> int:
    """A commit that deletes the last row reaches this hub before `position`, which depends on a hub of another hub."""
    value = db.numbers.get(position(db))
    if value is None or value == 7:
        raise ValueError(f"the last number is {value}")
    return value


def test_transient_failure_within_a_commit_is_not_reported() -> None:
    db = NumberDatabase()
    node = db.watch(last_number)
    db.set("n00004", 4)
    db.refresh(node)
    assert node.value == 4
    runs = db.runs
    db.set("n00004", None)
    assert db.ran.count(f"{last_number}()") == 2, "no intermediate state was observed"
    assert db.runs > runs
    assert (node.value, node.error) == (2, None)
    assert (db.reports, db.failures) == ([], 0)


def test_only_the_final_failure_of_a_commit_is_reported() -> None:
    db = NumberDatabase()
    db.watch(last_number)
    db.commit([(db.numbers, "n00002", 7), (db.numbers, "n00004", 4)])
    assert db.reports == []
    db.set("n00004", None)
    assert db.ran.count(f"{last_number}()") == 2, "no intermediate state was observed"
    assert (db.reports, db.failures) == (["last_number: the last number is 7"], 1)


@derived
def optional_cycle(db: NumberDatabase) -> int:
    return cycle_partner(db) if db.numbers.get("n00001") == 7 else 0


@derived
def cycle_partner(db: NumberDatabase) -> int:
    return optional_cycle(db) + 1


def test_new_cycle_is_an_error_of_all_its_nodes() -> None:
    """The first node reads and verifies the second while it runs."""
    db = NumberDatabase()
    first, second = db.watch(optional_cycle), db.watch(cycle_partner)
    assert (first.value, second.value) == (0, 1)
    db.set("n00001", 7)
    db.refresh(first)
    assert isinstance(first.error, CycleError)
    assert isinstance(second.error, CycleError)
    assert not second.stale
    db.set("n00001", 1)
    db.refresh(second)
    assert (second.value, second.error, first.error) == (1, None, None)
