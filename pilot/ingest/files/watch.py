"""Watches a folder using the kernel's file notifications."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable

from watchfiles import awatch

from pilot.lib.logging.log import scope

_log = scope("config")
_STEP = 40
"""Milliseconds between two polls for notifications. A change is reported after at most two polls, which is 80 ms."""
_GROUP = 200
"""Milliseconds after which continuous changes are reported."""
_CHECK = 2_000
"""Milliseconds without changes after which the folder is checked.

If it was replaced, it sends no more notifications.
"""
_RETRY = 1.0
"""Seconds between a failure and the next attempt."""


class Watch:
    """Calls `changed` with changed paths, and `missed` if changes may have been missed.

    The folder need not exist yet. If it does not exist, an error is logged unless `optional` is true.
    """

    def __init__(
        self,
        folder: str,
        changed: Callable[[Iterable[str]], None],
        missed: Callable[[], None],
        recursive: bool = True,
        optional: bool = False,
    ) -> None:
        self._folder, self._changed, self._missed, self._recursive, self._optional = (
            folder,
            changed,
            missed,
            recursive,
            optional,
        )
        self._task: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._fault = ""

    async def start(self) -> None:
        """Start watching. After this returns, no change is missed."""
        watching = asyncio.Event()
        self._task = asyncio.create_task(self._run(watching), name=f"watch {self._folder}")
        await watching.wait()

    async def stop(self) -> None:
        self._end.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _run(self, watching: asyncio.Event) -> None:
        while not self._end.is_set():
            try:
                await self._watch(watching)
            except Exception as fault:  # the folder is missing or the kernel has no watches left: retry
                self._log_fault(fault)
                watching.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._end.wait(), _RETRY)
            watching.set()

    def _log_fault(self, fault: Exception) -> None:
        while isinstance(fault, ExceptionGroup):  # watchfiles wraps the errors of its tasks
            fault = fault.exceptions[0]
        if self._optional and isinstance(fault, FileNotFoundError):
            return
        text = f"{type(fault).__name__}: {fault}"
        if text != self._fault:
            self._fault = text
            _log.error(
                "cannot watch %s, retrying: %s",
                self._folder,
                text,
                exc_info=not isinstance(fault, OSError | RuntimeError),
            )

    async def _watch(self, watching: asyncio.Event) -> None:
        """Watch until `stop` is called or the folder is replaced."""
        inode = os.stat(self._folder).st_ino
        changes = awatch(
            self._folder,
            watch_filter=None,
            debounce=_GROUP,
            step=_STEP,
            stop_event=self._end,
            rust_timeout=_CHECK,
            yield_on_timeout=True,
            recursive=self._recursive,
            ignore_permission_denied=True,
        )
        first = asyncio.ensure_future(anext(changes, None))
        await asyncio.sleep(0)  # its first step sets up the notifications
        if not first.done():
            self._fault = ""
            self._missed()
            watching.set()
        batch = await first
        while batch is not None:
            if batch:
                self._changed([path for _, path in batch])
            elif os.stat(self._folder).st_ino != inode:
                break
            batch = await anext(changes, None)
        await changes.aclose()
