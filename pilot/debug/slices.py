"""Splits long computations on the event loop into slices, so that other tasks wait for a few milliseconds at most."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
SLICE = 0.004
"""Maximum duration of a slice in seconds. A single slow item may exceed it."""
PROBE = 0.001
"""Seconds for which a computation pauses after a slice to see whether the event loop has other work."""
IDLE = 0.2
"""Maximum part of a probe for which an idle event loop computes."""
PATIENCE = 9
"""Maximum duration of the pauses after a slice, in multiples of the slice.

Computations therefore use at most a tenth of a busy event loop together, and most of an idle one.
"""


async def collect_all(items: Iterable[T]) -> list[T]:
    """Return all items. Yield to the event loop while they are produced."""
    iterator, collected = iter(items), list[T]()
    while part := await _next_slice(iterator):
        collected += part
    return collected


async def collect_present(items: Iterable[T | None]) -> list[T]:
    """Return all items that are not None. Yield to the event loop while they are produced."""
    iterator, collected = iter(items), list[T]()
    while part := await _next_slice(iterator):
        collected += [item for item in part if item is not None]
    return collected


async def for_each(items: Iterable[T], act: Callable[[T], object]) -> None:
    """Call `act` with each item. Yield to the event loop between items."""
    iterator = map(act, items)
    while await _next_slice(iterator):
        pass


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""The lock of each event loop. A computation holds it during a slice and the pause after it."""


async def _next_slice(iterator: Iterator[T]) -> list[T]:
    """Return the next items, or none at the end. Concurrent computations take turns."""
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        started, part = time.perf_counter(), list[T]()
        for item in iterator:
            part.append(item)
            if time.perf_counter() - started >= SLICE:
                await _wait_until_idle(PATIENCE * (time.perf_counter() - started))
                break
        return part


async def _wait_until_idle(patience: float) -> None:
    """Wait until the event loop has little other work, for at most `patience` seconds."""
    now, deadline = time.perf_counter(), time.perf_counter() + patience
    while now < deadline:
        before, computed = now, time.thread_time()
        await asyncio.sleep(PROBE)
        now = time.perf_counter()
        if time.thread_time() - computed < IDLE * (now - before):
            return


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
