"""Refreshes that are interrupted between the items of gathers, and continued."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import pytest

from pilot.derive import Change, Database, Derived, Gather, Node, Paused, Steps, derived, derived_in_steps, graph, hub
from testing.mesh.number_derivations import NumberDatabase, keys, number, numbers


@derived
def double(db: NumberDatabase, key: str) -> int | None:
    """Return twice a number. Return None for multiples of 7."""
    number = numbers(db).get(key, 0)
    return None if number % 7 == 0 else 2 * number


doubles = Gather("doubles", keys, double)


@derived
def half(db: NumberDatabase, key: str) -> int | None:
    """Return half of an even number."""
    row = db.numbers.get(key)
    return None if row is None or row % 2 else row // 2


halves = Gather("halves", keys, half)


@derived
def sums(db: NumberDatabase) -> tuple[int, int]:
    return sum(numbers(db).values()), sum(doubles(db).values())


@derived
def total(db: NumberDatabase) -> int:
    """Return twice the sum of the numbers, read one by one."""
    return sum(double(db, key) or 0 for key in keys(db) if key != "n00013")


@derived
def balance(db: NumberDatabase) -> tuple[int, tuple[int, int]]:
    return total(db), sums(db)


@derived
def parity(db: NumberDatabase, key: str) -> int:
    return (db.numbers.get(key) or 0) % 2


@derived
def parities(db: NumberDatabase) -> int:
    """Return the number of odd numbers."""
    return sum(parity(db, key) for key in keys(db))


@derived_in_steps
def powers(db: NumberDatabase, key: str) -> Generator[None, None, list[int]]:
    """Return the first 100 powers of a number, each in a step."""
    number = double(db, key) or 1
    result = [1]
    for _ in range(100):
        yield
        db.ran.append(f"step {len(result)}")
        result.append(result[-1] * number)
    return result


@derived_in_steps
def listing(db: NumberDatabase) -> Steps[tuple[int | None, ...]]:
    """Return twice each number. Each is read in a step of its own."""
    result = []
    for key in keys(db):
        db.ran.append(f"turn {key}")
        yield double.step(key)
        result.append(double(db, key))
    return tuple(result)


def every(count: int) -> Callable[[], bool]:
    """Return a function that returns True in every `count`th call."""
    calls = itertools.count(1)
    return lambda: next(calls) % count == 0


def refresh_in_slices(db: NumberDatabase, node: Node, slices: list[int], between: Callable[[], None]) -> None:
    """Refresh a node. Call `between` and append the number of runs whenever it is interrupted."""
    while True:
        before = db.runs
        try:
            with db.pausing(every(10)):
                db.refresh(node)
        except Paused:
            slices.append(db.runs - before)
            between()
        else:
            return


def test_long_gather_is_refreshed_in_slices() -> None:
    db = NumberDatabase(1000)
    node, slices = db.watch_later(numbers), []
    before = db.runs
    refresh_in_slices(db, node, slices, lambda: None)
    assert node.value == {f"n{i:05}": i for i in range(1000) if i != 13}
    assert len(slices) == 100
    assert max(slices) <= 40, "each slice runs only its own items and the list of keys"
    assert db.runs - before <= 2100, "no item ran twice"


def test_derivation_with_many_reads_is_refreshed_in_slices() -> None:
    db = NumberDatabase(1000)
    node, slices = db.watch_later(total), []
    before = db.runs
    refresh_in_slices(db, node, slices, lambda: None)
    assert node.value == sum(2 * i for i in range(1000) if i % 7 and i != 13)
    assert len(slices) >= 99
    assert max(slices) <= 41, "each slice runs only the values that it reads for the first time"
    assert db.runs - before <= 3100, "no value ran twice"


def test_derivation_with_steps_is_resumed() -> None:
    db = NumberDatabase(10)
    node, slices = db.watch_later(powers, "n00003"), []
    refresh_in_slices(db, node, slices, lambda: None)
    assert node.value == [6**i for i in range(101)]
    assert len(slices) >= 10
    assert [text for text in db.ran if text.startswith("step")] == [f"step {i + 1}" for i in range(100)]


def test_derivation_with_steps_starts_again_after_a_change() -> None:
    db = NumberDatabase(10)
    node, edits = db.watch_later(powers, "n00003"), iter([("n00004", 40), ("n00003", 5)])
    refresh_in_slices(db, node, [], lambda: [db.set(*edit) for edit in [next(edits, None)] if edit] and None)
    assert node.value == [10**i for i in range(101)]
    db.set("n00003", 6)
    db.refresh(node)
    assert node.value == [12**i for i in range(101)]


def test_derivation_that_reads_a_value_in_each_step_is_resumed() -> None:
    db = NumberDatabase(1000)
    node, slices = db.watch_later(listing), []
    refresh_in_slices(db, node, slices, lambda: None)
    assert node.value == tuple(2 * i if i % 7 and i != 13 else None for i in range(1000))
    assert len(slices) >= 99
    turns = [text for text in db.ran if text.startswith("turn")]
    assert turns == [f"turn n{i:05}" for i in range(1000)], "no step ran twice"


def test_value_of_the_next_step_is_not_freed_during_a_pause() -> None:
    db = NumberDatabase(10)
    node, slices = db.watch_later(listing), []
    refresh_in_slices(db, node, slices, lambda: db.collect() and None)
    assert sum(text.startswith("double") for text in db.ran) == 10, "no value ran twice"
    db.unwatch(node)
    db.collect()
    assert not list(db.live_nodes())


def test_step_that_is_abandoned_before_its_value_is_read_frees_the_value() -> None:
    db = NumberDatabase(10)
    with db.pausing(every(3)), pytest.raises(Paused):
        listing(db)
    db.collect()
    assert not list(db.live_nodes())


def test_verification_of_many_values_is_interrupted() -> None:
    db = NumberDatabase(1000)
    node, slices = db.watch_later(parities), []
    refresh_in_slices(db, node, slices, lambda: None)
    db.commit([(db.numbers, f"n{i:05}", i + 1000) for i in range(1000)])
    db.ran.clear()
    slices.clear()
    refresh_in_slices(db, node, slices, lambda: None)
    assert len(slices) >= 99
    assert max(slices) <= 41
    assert "parities()" not in db.ran, "no parity has changed"
    assert len(db.ran) == 2000, "no value ran twice"


class _Tenths(Derived[[], dict[str, int]]):
    """A tenth of each number. A change affects only the readers of `tenth` whose number differs."""

    def reached(self, db: Database, node: Node, before: Any) -> Iterator[Node]:
        reached: list[Node] = []
        for key in before:
            if before[key] != node.value[key]:
                db.touch(tenth, (key,), reached)
                yield from reached
                reached.clear()


tenths = _Tenths(lambda db: {key: (value or 0) // 10 for key, value in numbers(db).items()}, hub=True)


@derived
def tenth(db: NumberDatabase, key: str) -> int:
    return tenths(db)[key]


@derived
def label(db: NumberDatabase, key: str) -> str:
    return f"{tenth(db, key)}"


def test_readers_of_many_changed_items_are_marked_in_slices() -> None:
    db = NumberDatabase(1000)
    nodes = [db.watch(label, key) for key in keys(db) if key != "n00013"]
    edits: list[Change] = [(db.numbers, f"n{i:05}", i + 1000) for i in range(1000) if i != 13]
    pauses: list[None] = []
    assert set(commit_in_slices(db, edits, lambda: pauses.append(None))) == set(nodes)
    assert len(pauses) >= 290, "100 slices for the rows, the numbers and the marks each"
    for node in nodes:
        db.refresh(node)
    assert [node.value for node in nodes] == [f"{(i + 1000) // 10}" for i in range(1000) if i != 13]


@derived
def multiple(db: NumberDatabase, factor: int) -> int:
    return factor * (number(db, "n00001") or 0)


@derived
def successor(db: NumberDatabase, factor: int) -> int:
    return multiple(db, factor) + 1


def test_readers_of_one_changed_value_are_marked_in_slices() -> None:
    db = NumberDatabase(3)
    nodes = [db.watch(successor, factor) for factor in range(5000)]
    pauses: list[None] = []
    affected = commit_in_slices(db, [(db.numbers, "n00001", 7)], lambda: pauses.append(None), 1)
    assert set(affected) == set(nodes)
    assert len(pauses) >= 5, "the second level has 5000 readers"
    for node in nodes:
        db.refresh(node)
    assert [node.value for node in nodes] == [7 * factor + 1 for factor in range(5000)]


def test_items_of_new_keys_are_listed_in_slices() -> None:
    db = NumberDatabase(3000)
    node, listed = db.watch_later(doubles), [0]

    def count_items() -> None:
        listed.append(sum(1 for _ in db.nodes_of(double)))

    while True:
        try:
            with db.pausing(every(2)):
                db.refresh(node)
        except Paused:
            count_items()
        else:
            break
    assert max(after - before for before, after in itertools.pairwise(listed)) <= 1024
    assert list(node.value) == [key for key in keys(db) if double(db, key) is not None]
    db.commit(
        [(db.numbers, f"m{i:05}", i + 1) for i in range(600)] + [(db.numbers, f"n{i:05}", None) for i in range(9)]
    )
    with pytest.raises(Paused), db.pausing(every(1)):
        db.refresh(node)
    db.refresh(node)
    assert list(node.value) == [key for key in keys(db) if double(db, key) is not None]


def all_numbers(db: NumberDatabase) -> list[tuple[str, int]]:
    return [(key, row) for key in keys(db) if (row := db.numbers.peek(key)) is not None]


def test_keys_and_values_of_a_long_gather_are_copied_in_slices() -> None:
    db = NumberDatabase(3000)
    db.set("n00013", 0)
    node = db.watch(numbers)
    db.commit([(db.numbers, "a00000", 1)])
    before, pauses = db.runs, 0
    while True:
        try:
            with db.pausing(every(1)):
                db.refresh(node)
        except Paused:
            pauses += 1
        else:
            break
    assert pauses >= 20, "about ten slices for the keys and for the values"
    assert db.runs - before <= 5, "only the new item ran"
    assert list(node.value.items()) == all_numbers(db)


@pytest.mark.parametrize("seed", range(8))
def test_gather_is_complete_if_its_items_change_while_it_is_copied(seed: int) -> None:
    rng = random.Random(seed)
    db = NumberDatabase(1200)
    db.set("n00013", 0)
    node = db.watch(halves)
    for _ in range(6):
        db.commit([(db.numbers, f"k{rng.randrange(10**5):05}", rng.randrange(14, 100))])
        edits = 6
        while True:
            try:
                with db.pausing(every(rng.randint(1, 4))):
                    db.refresh(node)
            except Paused:
                if edits and rng.random() < 0.6:
                    edits -= 1
                    key = rng.choice([*db.numbers.all_keys(), f"k{rng.randrange(10**5):05}"])
                    db.commit([(db.numbers, key, rng.choice([None, 15, rng.randrange(14, 100)]))])
            else:
                break
        assert list(node.value.items()) == [(key, row // 2) for key, row in all_numbers(db) if row % 2 == 0]


def test_gather_whose_values_are_equal_after_pauses_keeps_its_value() -> None:
    db = NumberDatabase(1000)
    node = db.watch(halves)
    value, changed_at = node.value, node.changed_at
    db.commit([(db.numbers, "m00000", 7)])  # odd numbers have no item
    refresh_in_slices(db, node, [], lambda: None)
    assert node.value is value
    assert node.changed_at == changed_at


def test_abandoned_steps_are_freed() -> None:
    db = NumberDatabase(10)
    with db.pausing(every(50)), pytest.raises(Paused):
        powers(db, "n00003")
    db.collect()
    assert not list(db.live_nodes())
    assert powers(db, "n00003") == [6**i for i in range(101)]


def test_value_that_reads_gathers_is_complete_after_pauses() -> None:
    db = NumberDatabase(300)
    node, slices = db.watch_later(sums), []
    refresh_in_slices(db, node, slices, lambda: None)
    expected = [i for i in range(300) if i != 13]
    assert node.value == (sum(expected), sum(2 * i for i in expected if i % 7))
    assert slices


def test_refresh_without_pausing_is_not_interrupted() -> None:
    db = NumberDatabase(100)
    with db.pausing(lambda: True), pytest.raises(Paused):
        db.watch(numbers)
    assert len(db.watch(numbers).value) == 99


def test_paused_values_are_freed() -> None:
    db = NumberDatabase(300)
    with db.pausing(every(50)), pytest.raises(Paused) as raised:
        sums(db)
    assert [node.fn for node in raised.value.nodes] == [numbers, sums]
    db.collect()
    assert not list(db.live_nodes())


@pytest.mark.parametrize("seed", range(20))
def test_commits_between_slices_are_not_lost(seed: int) -> None:
    chance = random.Random(seed)
    db = NumberDatabase(100)
    node = db.watch_later(balance)

    def edit() -> None:
        if chance.random() < 0.3:
            row = chance.choice([None, chance.randrange(20, 1000)])
            db.set(f"n{chance.randrange(110):05}", row)
        if chance.random() < 0.1:
            db.collect()

    for _ in range(5):
        refresh_in_slices(db, node, [], edit)
        sums_expected = _expected(dict(db.numbers.rows()))
        assert node.value == (sums_expected[1] - _unlucky(db), sums_expected)
        db.set(f"n{chance.randrange(110):05}", chance.randrange(20, 1000))


def _expected(rows: Mapping[str, int]) -> tuple[int, int]:
    numbers_left = [number for number in rows.values() if number != 13]
    return sum(numbers_left), sum(2 * number for number in numbers_left if number % 7)


def _unlucky(db: NumberDatabase) -> int:
    """Return the part of the second sum that `total` omits."""
    number = db.numbers.peek("n00013")
    return 0 if number is None or number == 13 or number % 7 == 0 else 2 * number


def test_inputs_of_an_interrupted_node_are_not_collected() -> None:
    db = NumberDatabase()
    db.unwatch(db.watch(total))
    db.commit(())  # parks the node and its inputs
    node = db.watch_later(total)
    with db.pausing(lambda: True), pytest.raises(Paused):
        db.refresh(node)
    db.collect()
    db.refresh(node)
    assert db.commit([(db.numbers, "n00002", 20)]) == [node]
    db.refresh(node)
    assert node.value == 2 * (0 + 1 + 20)
    db.unwatch(node)
    db.collect()
    assert len(db) == 0


def test_node_that_is_watched_before_it_is_collected_follows_its_inputs() -> None:
    db = NumberDatabase()
    db.unwatch(db.watch(total))
    db.commit(())  # parks the node and its inputs
    node = db.watch_later(total)
    db.collect()
    db.refresh(node)
    assert db.commit([(db.numbers, "n00002", 20)]) == [node]
    db.refresh(node)
    assert node.value == 2 * (0 + 1 + 20)


gathered = Gather("gathered numbers", keys, number, hub=True)


@hub
def whole_sum(db: NumberDatabase) -> int:
    return sum(gathered(db).values())


@derived
def share(db: NumberDatabase, key: str) -> tuple[int, int]:
    """Return a number and the sum of all. Numbers of 1000 and more are a part of a larger sum."""
    part, whole = number(db, key) or 0, whole_sum(db)
    if part >= 1000 and whole < part:
        raise ValueError("larger than the sum")
    return part, whole


def commit_in_slices(
    db: NumberDatabase, edits: list[Change], between: Callable[[], None], checks: int = 10
) -> list[Node]:
    """Commit edits, and interrupt the commit at every `checks`th check. Call `between` whenever it is interrupted."""
    steps = db.commit_in_steps(edits)
    while True:
        try:
            with db.pausing(every(checks)):
                next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        between()


@hub
def hundreds(db: NumberDatabase, hundred: int) -> int:
    """Return the sum of a hundred numbers."""
    return sum(db.numbers.get(f"n{hundred:03}{n:02}") or 0 for n in range(100))


@hub
def sum_of_hundreds(db: NumberDatabase) -> int:
    return sum(hundreds(db, hundred) for hundred in range(10))


def test_hub_that_reads_many_hubs_is_refreshed_once() -> None:
    db = NumberDatabase(0)
    node = db.watch(sum_of_hundreds)
    db.ran.clear()
    assert db.commit([(db.numbers, f"n{i:05}", i + 20) for i in range(1000)]) == [node]
    assert node.value == sum(i + 20 for i in range(1000))
    assert sorted(db.ran)[:10] == [f"hundreds({hundred},)" for hundred in range(10)]
    assert [name for name in db.ran if name.startswith("sum_of_hundreds")] == ["sum_of_hundreds()"]


def test_hubs_are_refreshed_in_slices() -> None:
    db = NumberDatabase(0)
    node, runs = db.watch(whole_sum), [db.runs]
    edits = [(db.numbers, f"n{i:05}", i + 20) for i in range(1000)]
    assert commit_in_slices(db, edits, lambda: runs.append(db.runs)) == [node]
    assert node.value == sum(i + 20 for i in range(1000))
    assert len(runs) > 190, "100 slices for the rows, 100 for the items"
    assert max(later - earlier for earlier, later in itertools.pairwise(runs)) <= 40


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("marked_in_a_step", [1, graph.MARKED_IN_A_STEP])
def test_values_read_while_a_commit_is_interrupted_are_updated_after_it(
    marked_in_a_step: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "MARKED_IN_A_STEP", marked_in_a_step)
    chance = random.Random(seed)
    db = NumberDatabase(40)
    watched = {key: db.watch(share, key) for key in (f"n{i:05}" for i in range(50))}
    interrupted: list[Node] = []

    def between() -> None:
        chosen = chance.choice([*watched.values()])
        db.refresh(chosen)
        if chance.random() < 0.3:
            interrupted.extend(db.commit([(db.numbers, f"n{chance.randrange(50):05}", chance.randrange(20, 900))]))
        if chance.random() < 0.2:
            db.collect()

    for _ in range(10):
        rows = ((f"n{chance.randrange(50):05}", chance.choice([None, chance.randrange(20, 900)])) for _ in range(30))
        affected = commit_in_slices(db, [(db.numbers, key, row) for key, row in rows], between)
        assert {node for node in watched.values() if node.stale} <= {*affected, *interrupted}
        whole = sum(row for _, row in db.numbers.rows() if row != 13)
        for key, node in watched.items():
            db.refresh(node)
            row = db.numbers.peek(key)
            assert node.value == (0 if row is None else row, whole) or row == 13
    assert interrupted


def test_failures_of_interrupted_commits_are_reported_if_they_remain() -> None:
    db = NumberDatabase(100)
    node, failures = db.watch(share, "n00001"), []
    db.reports.clear()

    def between() -> None:
        db.refresh(node)
        failures.append(node.error)

    filler: list[Change] = [(db.numbers, f"n{i:05}", i + 20) for i in range(2, 100)]
    commit_in_slices(db, [(db.numbers, "n00001", 9999), *filler], between)
    db.refresh(node)
    assert node.value[0] == 9999
    assert node.error is None
    assert any(failures), "the row was read before the sum was up to date"
    assert db.reports == []


def test_value_of_the_last_step_is_kept_during_a_pause() -> None:
    db = NumberDatabase(10)
    node, steps_at_pauses = db.watch_later(powers, "n00003"), list[int]()
    while node.stale:
        try:
            with db.pausing(lambda: True):
                db.refresh(node)
        except Paused:
            steps_at_pauses.append(sum(text.startswith("step") for text in db.ran))
    assert node.value == [6**i for i in range(101)]
    assert steps_at_pauses[-2:] == [99, 100], "the value is compared with the previous one after the last pause"
    assert [text for text in db.ran if text.startswith("step")] == [f"step {i + 1}" for i in range(100)]


def test_value_of_the_last_step_is_dropped_if_an_input_changes_during_the_pause() -> None:
    db = NumberDatabase(10)
    node, steps = db.watch_later(powers, "n00003"), 0
    while node.stale:
        try:
            with db.pausing(lambda: True):
                db.refresh(node)
        except Paused:
            steps = sum(text.startswith("step") for text in db.ran)
            if steps == 100:
                db.set("n00003", 5)
    assert node.value == [10**i for i in range(101)]


def test_reader_outside_of_derivations_is_interrupted() -> None:
    db = NumberDatabase(10)
    db.pause_if_due()
    with db.pausing(every(2)):
        db.pause_if_due()
        with pytest.raises(Paused):
            db.pause_if_due()
