"""Work of the event loop that takes long is done a slice at a time, so that whoever waits for the loop waits for milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
SLICE = 0.004
"""Seconds that one slice takes, and however long one item takes more."""


async def all_of(items: Iterable[T]) -> list[T]:
    """Returns all items; others get their turns while they are made."""
    return [item async for item in _in_turns(items)]


async def those_of(items: Iterable[T | None]) -> list[T]:
    """Returns all items but None, in the same way."""
    return [item async for item in _in_turns(items) if item is not None]


async def for_each(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Calls `act` with each item, in the same way."""
    async for item in _in_turns(items):
        act(item)


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    end = time.perf_counter() + SLICE
    for item in items:
        yield item
        if time.perf_counter() >= end:
            await asyncio.sleep(0)
            end = time.perf_counter() + SLICE


LONGEST = 10.0
"""Seconds for which the collector rests at most while there is always some large answer being made."""


class _Rest:
    """How many want the collector of cyclic garbage to rest, and since when it does, monotonic."""

    wanted = 0
    since = 0.0


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Lets no cyclic garbage be looked for: a large answer is made of many objects, all of which a collection would look at time and again,
    while nobody else has a turn. They are in no cycles, and go when the answer is written."""
    if not _Rest.wanted and gc.isenabled():
        gc.disable()
        _Rest.since = time.monotonic()
    elif time.monotonic() - _Rest.since > LONGEST:
        gc.enable()
    _Rest.wanted += 1
    try:
        yield
    finally:
        _Rest.wanted -= 1
        if not _Rest.wanted:
            gc.enable()
