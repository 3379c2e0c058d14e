"""Computes long derivations in slices, between which the event loop handles other events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pilot.derive import Database, Node, Paused
from pilot.lib.time_slice import SLICE_SECONDS, time_slice

T = TypeVar("T")


async def in_slices(
    db: Database, read: Callable[[], T], wait: Callable[[], Awaitable[None]], slice_seconds: float = SLICE_SECONDS
) -> T:
    """Return the result of `read`, which reads derived values.

    After each slice, call `wait`. Then continue the interrupted derivations, the innermost one first, and call `read`
    again.
    """
    paused_nodes: list[Node] = []
    is_over = time_slice(slice_seconds)
    try:
        while True:
            try:
                with db.pausing(is_over):
                    if not paused_nodes:
                        return read()
                    db.refresh(paused_nodes[-1])
            except Paused as paused:
                for node in reversed(paused.nodes):
                    if node not in paused_nodes:
                        db.hold(node)
                        paused_nodes.append(node)
            else:
                db.unwatch(paused_nodes.pop())
                if not is_over():
                    continue
            await wait()
            is_over = time_slice(slice_seconds)
    finally:
        for node in paused_nodes:
            db.unwatch(node)
