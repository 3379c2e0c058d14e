"""What may be under way at once."""
from __future__ import annotations

import asyncio
import itertools

import pytest

from pilot.serve.admission import Admission
from pilot.serve.flight import BytesInFlight, Turns


async def started(*waits: asyncio.Task[None]) -> list[bool]:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [wait.done() for wait in waits]


def test_room_is_taken_until_there_is_none() -> None:
    flight = BytesInFlight(100, small=0)
    assert flight.take(60)
    assert flight.take(40)
    assert not flight.take(1)
    flight.give_back(40)
    assert flight.take(1)


def test_one_that_is_larger_than_the_limit_goes_alone() -> None:
    flight = BytesInFlight(100, small=0)
    assert flight.take(1000)
    assert not flight.take(1)
    flight.give_back(1000)
    assert flight.take(1)
    assert not flight.take(1000)


def test_small_ones_pass() -> None:
    flight = BytesInFlight(100, small=10)
    assert flight.take(100)
    assert flight.take(10)
    assert not flight.take(11)


async def test_first_come_first_served_also_before_newcomers() -> None:
    flight = BytesInFlight(100, small=0)
    assert flight.take(100)
    large, little = asyncio.create_task(flight.wait(80)), asyncio.create_task(flight.wait(30))
    assert await started(large, little) == [False, False]
    flight.give_back(50)
    assert await started(large, little) == [False, False]
    assert not flight.take(10)
    flight.give_back(50)
    assert await started(large, little) == [True, False]
    flight.give_back(80)
    assert await started(little) == [True]
    assert (flight.used, len(flight)) == (30, 0)


async def test_who_goes_while_it_waits_holds_up_nobody() -> None:
    flight = BytesInFlight(100, small=0)
    assert flight.take(100)
    first, second = asyncio.create_task(flight.wait(50)), asyncio.create_task(flight.wait(50))
    await started(first, second)
    first.cancel()
    flight.give_back(100)
    assert await started(first, second) == [True, True]
    assert flight.used == 50
    flight.give_back(50)
    third = asyncio.create_task(flight.wait(10))
    await asyncio.sleep(0)
    flight.give_back(0)  # its turn has come, and in the same moment it goes
    third.cancel()
    assert await started(third) == [True]
    assert flight.used == 0


async def test_turns_end_with_the_slice_and_go_on_in_later_rounds() -> None:
    now = 0.0
    turns, order = Turns(1.0, lambda: now), []

    async def work(name: str, cost: float) -> None:
        nonlocal now
        await turns.turn()
        order.append(name)
        now += cost

    tasks = [asyncio.create_task(work(f"heavy {i}", 2.0)) for i in range(3)]
    rounds = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds.append(len(order))
    assert order == ["heavy 0", "heavy 1", "heavy 2"]
    assert all(after - before <= 1 for before, after in itertools.pairwise(rounds)), "one heavy one a round"


async def test_many_light_turns_need_few_rounds() -> None:
    turns, done = Turns(1.0, lambda: 0.0), 0

    async def work() -> None:
        nonlocal done
        await turns.turn()
        done += 1

    tasks = [asyncio.create_task(work()) for _ in range(1000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == 1000
    await asyncio.gather(*tasks)


async def test_a_turn_that_nobody_takes_passes_on() -> None:
    now = 0.0
    turns = Turns(1.0, lambda: now)
    await turns.turn()
    now = 5.0
    gone, waiting = asyncio.create_task(turns.turn()), asyncio.create_task(turns.turn())
    gone.cancel()
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(
    ("rate", "arrivals", "admitted", "slept"),
    [
        (0.0, [0, 0, 0], [True, True, True], []),
        (1.0, [0, 0, 0], [True, True, False], [1.0]),
        (2.0, [0, 0, 0, 0], [True, True, True, False], [0.5, 1.0]),
        (1.0, [0, 5, 5], [True, True, True], [1.0]),
    ],
)
async def test_admission(rate: float, arrivals: list[float], admitted: list[bool], slept: list[float]) -> None:
    now, sleeps = 0.0, []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)

    gate, got = Admission(rate, lambda: now, sleep), []
    for arrival in arrivals:
        now = arrival
        got.append(await gate.admit())
    assert (got, sleeps) == (admitted, slept)
