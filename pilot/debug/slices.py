"""Splits long computations on the event loop into slices, so that other tasks wait for a few milliseconds at most."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
SLICE = 0.004
"""Maximum duration of a slice in seconds. A single slow item may exceed it."""
PAUSE = SLICE
"""Seconds for which a computation pauses after a slice, for each other computation in progress.

Other tasks therefore wait for about one slice, whatever the number of computations. One that is alone does not pause.
"""


async def collect_all(items: Iterable[T]) -> list[T]:
    """Return all items. Yield to the event loop while they are produced."""
    return [item async for item in _in_turns(items)]


async def collect_present(items: Iterable[T | None]) -> list[T]:
    """Return all items that are not None. Yield to the event loop while they are produced."""
    return [item async for item in _in_turns(items) if item is not None]


async def for_each(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Call `act` with each item. Yield to the event loop between items."""
    async for item in _in_turns(items):
        act(item)


class _Progress:
    """The number of computations in progress."""

    count = 0


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    _Progress.count += 1
    try:
        end = time.perf_counter() + SLICE
        for item in items:
            yield item
            if time.perf_counter() >= end:
                await asyncio.sleep(PAUSE * (_Progress.count - 1))
                end = time.perf_counter() + SLICE
    finally:
        _Progress.count -= 1


LONGEST = 10.0
"""Maximum number of seconds for which overlapping large responses suspend garbage collection."""


class _Suspension:
    """The number of responses that suspend garbage collection, and when the suspension started (monotonic time).

    `restores` is whether the suspension has disabled the collector. Otherwise it stays disabled for those who did, such
    as the first load.
    """

    users = 0
    since = 0.0
    restores = False


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Suspend garbage collection while a large response is built.

    Otherwise the collector would repeatedly traverse the response's many objects and block the event loop. The objects
    form no reference cycles, so they are freed once the response has been written.
    """
    if not _Suspension.users:
        _Suspension.restores, _Suspension.since = gc.isenabled(), time.monotonic()
        gc.disable()
    elif _Suspension.restores and time.monotonic() - _Suspension.since > LONGEST:
        gc.enable()
    _Suspension.users += 1
    try:
        yield
    finally:
        _Suspension.users -= 1
        if _Suspension.restores and not _Suspension.users:
            gc.enable()
