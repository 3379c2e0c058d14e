"""Tells what changes below a folder, by the kernel's notifications."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable

from watchfiles import awatch

from pilot.lib.log import scope

_log = scope("config")
_STEP = 40
"""Milliseconds between two looks at what the kernel has reported: two a change at most, so it is known after 80 ms."""
_GROUP = 200
"""Milliseconds after which changes that never pause are handed on."""
_CHECK = 2_000
"""Milliseconds without changes after which the folder is looked at: one that was replaced notifies no more."""
_RETRY = 1.0
"""Seconds until the next attempt where watching failed."""


class Watch:
    """Calls `changed` with the paths of what happened, and `missed` when anything may have happened unseen.

    The folder may come later; only where it is `optional` nothing is logged until then.
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
        """Watches in the background from when this returns."""
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
                await self._follow(watching)
            except (
                Exception
            ) as fault:  # the folder is gone, or the kernel has no watches left: never the end of the process
                self._tell(fault)
                watching.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._end.wait(), _RETRY)
            watching.set()

    def _tell(self, fault: Exception) -> None:
        while isinstance(fault, ExceptionGroup):  # of the library's tasks
            fault = fault.exceptions[0]
        if self._optional and isinstance(fault, FileNotFoundError):
            return
        text = f"{type(fault).__name__}: {fault}"
        if text != self._fault:
            self._fault = text
            _log.error(
                "cannot follow %s, trying again: %s",
                self._folder,
                text,
                exc_info=not isinstance(fault, OSError | RuntimeError),
            )

    async def _follow(self, watching: asyncio.Event) -> None:
        """Follows until stopped, or the folder is another one."""
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
        found = await first
        while found is not None:
            if found:
                self._changed([path for _, path in found])
            elif os.stat(self._folder).st_ino != inode:
                break
            found = await anext(changes, None)
        await changes.aclose()
