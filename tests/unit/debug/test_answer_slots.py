"""Tests of the slots for responses of debug pages."""

from __future__ import annotations

import asyncio
import time

import pytest

from pilot.debug import answer_slots
from pilot.debug.answer_slots import AnswerSlots, TooManyWaiting


async def enter(slots: AnswerSlots, tenant: str | None, entered: list[str | None], leave: asyncio.Event) -> None:
    async with slots.hold(tenant):
        entered.append(tenant)
        await leave.wait()


async def test_tenant_holds_one_slot_and_delays_no_other_caller() -> None:
    slots, leave = AnswerSlots(3), asyncio.Event()
    entered: list[str | None] = []
    tasks = [asyncio.create_task(enter(slots, tenant, entered, leave)) for tenant in ("a", "a", "a", "b", None, None)]
    await asyncio.sleep(0.01)
    assert entered == ["a", "b", None]
    leave.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert entered == ["a", "b", None, None, "a", "a"]


async def test_tenant_pauses_in_proportion_to_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    now, timers = 100.0, list[float]()
    slots = AnswerSlots()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, *_: timers.append(delay))
    for tenant, seconds in (("a", 0.5), ("b", 60.0), (None, 60.0)):
        async with slots.hold(tenant):
            now += seconds
    assert timers == [2.0, 10.0]


async def test_flood_of_requests_of_a_tenant_is_rejected_and_delays_no_other_caller() -> None:
    slots, leave, entered = AnswerSlots(3), asyncio.Event(), list[str | None]()
    flood = [asyncio.create_task(enter(slots, "a", entered, leave)) for _ in range(1000)]
    await asyncio.sleep(0.01)
    others = [asyncio.create_task(enter(slots, tenant, entered, leave)) for tenant in ("b", None)]
    await asyncio.sleep(0.01)
    assert entered == ["a", "b", None]
    rejected = [task for task in flood if task.done()]
    assert len(rejected) == 1000 - 1 - answer_slots.MAX_WAITING
    with pytest.raises(TooManyWaiting, match=r"^more than 32 requests of the namespace wait for debug pages$"):
        await rejected[0]
    for task in (*flood, *others):
        task.cancel()
    await asyncio.gather(*flood, *others, return_exceptions=True)


async def test_pause_ends_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_slots, "MAX_PAUSE", 0.0)
    slots = AnswerSlots(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(5), slots.hold("a"):
                raise ZeroDivisionError
