"""Order in which callers receive a shared resource."""

from __future__ import annotations

import asyncio

from pilot.lib.workers import job_queue as fair_queue
from pilot.lib.workers.job_queue import JobQueue, JobSource


def caller(item: str) -> JobSource:
    """Return the caller of an item such as "a/n 1"."""
    address, _, namespace = item.partition(" ")[0].partition("/")
    return JobSource(address, namespace)


async def served(queue: JobQueue[str], count: int, costs: dict[str, float]) -> list[str]:
    """Serve a number of items, each with the cost of its caller's address or namespace, and return them."""
    items = []
    for _ in range(count):
        item = await queue.get()
        items.append(item)
        source = caller(item)
        queue.charge(source, costs.get(source.namespace, costs.get(source.address, 1.0)))
    return items


def queue_of(*items: str) -> JobQueue[str]:
    queue: JobQueue[str] = JobQueue()
    for item in items:
        queue.put(caller(item), item)
    return queue


async def test_items_of_one_caller_keep_their_order() -> None:
    assert await served(queue_of("a 1", "a 2", "a 3"), 3, {}) == ["a 1", "a 2", "a 3"]


async def test_expensive_items_of_one_address_wait_for_cheap_items_of_another() -> None:
    hostile, honest = [f"h {n}" for n in range(50)], [f"a {n}" for n in range(20)]
    order = await served(queue_of(*hostile, *honest), 22, {"h": 100.0, "a": 1.0})
    assert order == ["h 0", *honest, "h 1"]


async def test_expensive_items_of_one_namespace_wait_for_those_of_another() -> None:
    hostile, honest = [f"a/h {n}" for n in range(50)], [f"a/n {n}" for n in range(20)]
    assert await served(queue_of(*hostile, *honest), 22, {"h": 100.0, "n": 1.0}) == ["a/h 0", *honest, "a/h 1"]


async def test_many_namespaces_of_one_address_have_one_share() -> None:
    hostile, honest = [f"h/n{n} {n}" for n in range(50)], [f"a {n}" for n in range(5)]
    assert (await served(queue_of(*hostile, *honest), 10, {}))[1::2] == honest


async def test_caller_that_returns_after_each_item_keeps_its_debt() -> None:
    queue = queue_of("h 0", *(f"a {n}" for n in range(20)))
    order = []
    for number in range(1, 20):
        item = await queue.get()
        order.append(item)
        queue.charge(caller(item), 100.0 if item[0] == "h" else 1.0)
        if item[0] == "h":
            queue.put(JobSource("h"), f"h {number}")
    assert order == ["h 0", *(f"a {n}" for n in range(18))]


async def test_caller_that_was_idle_has_no_claim_for_that_time() -> None:
    queue = queue_of(*(f"a {n}" for n in range(30)))
    await served(queue, 10, {})
    for number in range(10):
        queue.put(JobSource("b"), f"b {number}")
    assert sum(item[0] == "b" for item in await served(queue, 10, {})) == 5


async def test_amounts_are_forgotten_when_nothing_waits() -> None:
    queue = queue_of("a 1")
    await served(queue, 1, {"a": 100.0})
    queue.put(JobSource("a"), "a 2")
    queue.put(JobSource("b"), "b 1")
    assert await served(queue, 2, {}) == ["a 2", "b 1"]


async def test_number_of_remembered_callers_is_limited() -> None:
    queue = queue_of("a 1", "a 2")
    for number in range(3 * fair_queue.MAX_IDLE):
        queue.put(JobSource(f"b{number}"), f"b{number}")
    order = await served(queue, 3 * fair_queue.MAX_IDLE + 2, {"a": 0.5})
    assert len(order) == 3 * fair_queue.MAX_IDLE + 2


async def test_get_waits_for_an_item() -> None:
    queue: JobQueue[str] = JobQueue()
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getting.done()
    queue.put(JobSource("a"), "a 1")
    assert await getting == "a 1"
