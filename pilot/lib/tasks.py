"""The end of tasks."""

from __future__ import annotations

import asyncio
import contextlib


async def cancel_tasks(*tasks: asyncio.Task[None] | None) -> None:
    """Cancels tasks, and waits until they have ended; None stands for one that never began."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    for task in begun:
        with contextlib.suppress(asyncio.CancelledError):
            await task
