"""Tests of the time slicer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pilot.xds.push.time_slicer import TimeSlicer


async def test_turn_ends_with_the_slice() -> None:
    now = 0.0
    slicer, order = TimeSlicer(1.0, lambda: now), []

    async def work(name: str, cost: float) -> None:
        nonlocal now
        await slicer.wait_turn()
        order.append(name)
        now += cost

    tasks = [asyncio.create_task(work(f"heavy {i}", 2.0)) for i in range(3)]
    rounds = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds.append(len(order))
    assert order == ["heavy 0", "heavy 1", "heavy 2"]
    assert all(after - before <= 1 for before, after in itertools.pairwise(rounds)), "one heavy task per round"


async def test_light_turns_share_a_round() -> None:
    slicer, completed = TimeSlicer(1.0, lambda: 0.0), 0

    async def work() -> None:
        nonlocal completed
        await slicer.wait_turn()
        completed += 1

    tasks = [asyncio.create_task(work()) for _ in range(1000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert completed == 1000
    await asyncio.gather(*tasks)


async def test_turn_of_a_cancelled_task_passes_on() -> None:
    now = 0.0
    slicer = TimeSlicer(1.0, lambda: now)
    await slicer.wait_turn()
    now = 5.0
    cancelled, waiting = asyncio.create_task(slicer.wait_turn()), asyncio.create_task(slicer.wait_turn())
    cancelled.cancel()
    await asyncio.wait_for(waiting, 5)


async def test_batches_double_while_rounds_are_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, rounds, batches = 0.0, list[Callable[[], None]](), list[int]()
    future = asyncio.get_running_loop().create_future
    monkeypatch.setattr(
        asyncio, "get_running_loop", lambda: SimpleNamespace(call_soon=rounds.append, create_future=future)
    )
    slicer = TimeSlicer(1.0, lambda: now)
    await slicer.wait_turn()
    now = 1.0  # the end of the slice
    tasks = [asyncio.create_task(slicer.wait_turn()) for _ in range(200)]
    await asyncio.sleep(0)
    for seconds in (0.0, *7 * (0.5,), 1.0, 0.5):
        now += seconds
        rounds.pop()()
        await asyncio.sleep(0)
        batches.append(sum(task.done() for task in tasks) - sum(batches))
        assert len(rounds) == 1
    assert batches == [1, 2, 4, 8, 16, 32, 64, 64, 1, 2]
    for task in tasks[195:]:
        task.cancel()
    await asyncio.sleep(0)
    for _ in range(2):
        rounds.pop()()
    assert rounds == []
    await asyncio.gather(*tasks[:195])


async def _compute(slicer: TimeSlicer, name: str, taken: float, order: list[str]) -> None:
    with slicer.serving():
        await slicer.pause(taken)
        order.append(name)


async def test_long_computations_resume_when_nothing_else_is_served() -> None:
    slicer, order = TimeSlicer(1.0, lambda: 0.0), list[str]()
    await asyncio.wait_for(_compute(slicer, "alone", 1e9, order), 5)
    with slicer.serving():
        tasks = [asyncio.create_task(_compute(slicer, name, taken, order)) for name, taken in (("b", 2e9), ("a", 1e9))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["alone"]
    await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert order == ["alone", "a", "b"], "the one that has taken least is resumed first"


async def test_long_computations_do_not_wait_for_others_without_end() -> None:
    slicer, order = TimeSlicer(1.0, lambda: 0.0), list[str]()
    with slicer.serving():
        await asyncio.wait_for(asyncio.gather(*(_compute(slicer, name, 1e9, order) for name in "ab")), 5)
    assert order == ["a", "b"]


async def test_long_computations_do_not_wait_for_stalled_writes() -> None:
    slicer, order = TimeSlicer(1.0, lambda: 0.0, lambda: 1), list[str]()
    with slicer.serving():
        task = asyncio.create_task(_compute(slicer, "a", 1e9, order))
        for _ in range(4):
            await asyncio.sleep(0)
        assert order == ["a"]
    await task


async def test_cancelled_computation_leaves_its_turn_to_the_next() -> None:
    slicer, order = TimeSlicer(1.0, lambda: 0.0), list[str]()
    with slicer.serving():
        cancelled, other = (asyncio.create_task(_compute(slicer, name, 1e9, order)) for name in ("cancelled", "other"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait_for(other, 5)
    assert order == ["other"]
