"""Slicing of long work on the event loop, so that other tasks wait for milliseconds at most."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
SLICE = 0.004
"""Duration of a slice in seconds, which one slow item may exceed."""


async def collect_all(items: Iterable[T]) -> list[T]:
    """Return all items, and yield to the event loop while they are produced."""
    return [item async for item in _in_turns(items)]


async def collect_present(items: Iterable[T | None]) -> list[T]:
    """Return all items except None, like `collect_all`."""
    return [item async for item in _in_turns(items) if item is not None]


async def for_each(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Call `act` with each item, like `collect_all`."""
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
"""Maximum seconds that garbage collection is suspended while large responses overlap."""


class _Suspension:
    """The number of users that suspend garbage collection, and the start of the suspension (monotonic)."""

    users = 0
    since = 0.0


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Suspend garbage collection while a large response is built.

    Collections would traverse its many objects again and again and block the event loop. The objects form no cycles, so
    they are freed when the response has been written.
    """
    if not _Suspension.users and gc.isenabled():
        gc.disable()
        _Suspension.since = time.monotonic()
    elif time.monotonic() - _Suspension.since > LONGEST:
        gc.enable()
    _Suspension.users += 1
    try:
        yield
    finally:
        _Suspension.users -= 1
        if not _Suspension.users:
            gc.enable()
