"""How long computing goes on before others get their turn."""

from __future__ import annotations

import asyncio
import itertools

from pilot.xds.push.time_slicer import TimeSlicer


async def test_turns_end_with_the_slice_and_go_on_in_later_rounds() -> None:
    now = 0.0
    turns, order = TimeSlicer(1.0, lambda: now), []

    async def work(name: str, cost: float) -> None:
        nonlocal now
        await turns.wait_turn()
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
    turns, done = TimeSlicer(1.0, lambda: 0.0), 0

    async def work() -> None:
        nonlocal done
        await turns.wait_turn()
        done += 1

    tasks = [asyncio.create_task(work()) for _ in range(1000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == 1000
    await asyncio.gather(*tasks)


async def test_a_turn_that_nobody_takes_passes_on() -> None:
    now = 0.0
    turns = TimeSlicer(1.0, lambda: now)
    await turns.wait_turn()
    now = 5.0
    gone, waiting = asyncio.create_task(turns.wait_turn()), asyncio.create_task(turns.wait_turn())
    gone.cancel()
    await asyncio.wait_for(waiting, 5)
