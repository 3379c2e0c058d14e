"""Slots that callers receive in turn."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from pilot.lib.fair_slots import FairSlots, NoSlot


class Work:
    """Work in slots. `order` contains the names of callers in the order in which they received a slot."""

    def __init__(self, slots: FairSlots) -> None:
        self._slots, self.order, self.end = slots, list[str](), asyncio.Event()

    async def run(self, key: str, name: str) -> None:
        async with self._slots.slot(key):
            self.order.append(name)
            await self.end.wait()

    async def start(self, *callers: str) -> list[asyncio.Task[None]]:
        """Start callers. Their keys are the first characters of their names."""
        tasks = [asyncio.create_task(self.run(name[0], name)) for name in callers]
        await asyncio.sleep(0)
        return tasks

    async def finish(self, *tasks: asyncio.Task[None]) -> list[BaseException | None]:
        self.end.set()
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_keys_receive_slots_in_turn() -> None:
    work = Work(FairSlots(1, 100))
    tasks = await work.start("a0", *(f"a{n}" for n in range(1, 9)), "b1", "c1", "b2")
    assert await work.finish(*tasks) == [None] * 12
    assert work.order == ["a0", "a1", "b1", "c1", "a2", "b2", *(f"a{n}" for n in range(3, 9))]
    assert await work.finish(*await work.start("d1")) == [None]


async def test_key_receives_at_most_its_share_and_others_the_rest() -> None:
    work = Work(FairSlots(3, 100, share=2))
    tasks = await work.start("a0", "a1", "a2", "b0", "b1")
    assert work.order == ["a0", "a1", "b0"]
    tasks[3].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert work.order == ["a0", "a1", "b0", "b1"]
    await work.finish(*tasks)
    assert work.order[-1] == "a2"


async def test_beyond_the_capacity_the_key_with_the_most_callers_loses_its_last() -> None:
    work = Work(FairSlots(1, 4))
    tasks = await work.start("a0", "a1", "a2", "a3", "b1", "b2", "a4", "c1")
    assert [type(error) for error in await work.finish(*tasks) if error] == [NoSlot] * 3
    assert work.order == ["a0", "a1", "b1", "c1", "b2"]


async def test_cancelled_callers_leave_the_queue_and_lose_no_slot() -> None:
    slots = FairSlots(2, 3)
    work = Work(slots)
    tasks = await work.start("a0", "b0", "a1", "a2", "b1")
    tasks[2].cancel()
    await asyncio.sleep(0)
    assert not (await work.start("c1"))[0].done()
    tasks[0].cancel()  # its slot is assigned to a2, which is cancelled at the same time
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.sleep(0)
    tasks[4].cancel()
    await work.finish(*tasks)
    async with asyncio.timeout(5), contextlib.AsyncExitStack() as stack:
        for key in "xy":
            await stack.enter_async_context(slots.slot(key))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), slots.slot("z"):
                pass
