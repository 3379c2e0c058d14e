"""Work of the event loop that takes long is done a slice at a time, so that whoever waits for the loop waits for milliseconds."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
SLICE = 0.004
"""Seconds that one slice takes, and however long one item takes more."""


async def all_of(items: Iterable[T]) -> list[T]:
    """Returns all items; others get their turns while they are made."""
    made: list[T] = []
    end = time.perf_counter() + SLICE
    for item in items:
        made.append(item)
        if time.perf_counter() >= end:
            await asyncio.sleep(0)
            end = time.perf_counter() + SLICE
    return made
