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


class _Clock:
    """A clock that advances by `step` seconds whenever it is read."""

    def __init__(self, step: float) -> None:
        self.step, self.time = step, 100.0

    def __call__(self) -> float:
        self.time += self.step
        return self.time


async def _pause_all(clock: _Clock, *taken: float) -> list[tuple[float, float]]:
    """Return the time that each computation had taken, and the seconds until it was resumed, in the order of
    resumption."""
    slicer, started, resumed = TimeSlicer(1e9, clock), clock.time, list[tuple[float, float]]()

    async def compute(seconds: float) -> None:
        await slicer.pause(seconds)
        resumed.append((seconds, clock.time - started))

    await asyncio.wait_for(asyncio.gather(*map(compute, taken)), 20)
    return resumed


@pytest.mark.parametrize(("taken", "pause"), [(0.012, 0.003), (0.08, 0.02), (1.0, 0.04), (1e9, 0.04)])
async def test_long_computation_pauses_while_the_event_loop_is_busy(taken: float, pause: float) -> None:
    [(_, waited)] = await _pause_all(_Clock(0.001), taken)
    assert pause <= waited < pause + 0.005


async def test_long_computation_is_resumed_at_once_if_the_event_loop_is_idle() -> None:
    [(_, waited)] = await _pause_all(_Clock(0.0001), 1e9)
    assert waited < 0.001


async def test_computation_that_has_taken_least_is_resumed_first() -> None:
    resumed = await _pause_all(_Clock(0.001), 3.0, 1.0, 2.0)
    assert [taken for taken, _ in resumed] == [1.0, 2.0, 3.0]
    assert [round(waited, 2) for _, waited in resumed] == [0.04, 0.08, 0.12], "they share the time"


async def test_cancelled_computation_is_not_resumed() -> None:
    clock = _Clock(0.001)
    slicer = TimeSlicer(1e9, clock)
    cancelled, other = asyncio.create_task(slicer.pause(1.0)), asyncio.create_task(slicer.pause(2.0))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait_for(other, 20)
    assert clock.time < 100.06
