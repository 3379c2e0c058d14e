"""Cancels tasks."""

from __future__ import annotations

import asyncio
import contextlib


async def cancel_tasks(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks, and wait until they have finished. None represents a task that has not been started."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    for task in started:
        with contextlib.suppress(asyncio.CancelledError):
            await task
