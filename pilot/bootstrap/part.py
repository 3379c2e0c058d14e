"""A process as a list of parts, which start in order and stop in reverse order.

The process is ready when all parts are ready.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError

_log = scope("default")


async def do_nothing() -> None:
    """Do nothing. Used for a part that has nothing to start or stop."""


class Part(NamedTuple):
    """A part of a process.

    start: Returns when the part is running. If it raises an error, it cleans up first.
    stop: Called once, and only after a successful start.
    ready: Returns whether the part is ready. Some parts need more time after `start` has returned.
    """

    name: str
    start: Callable[[], Awaitable[None]] = do_nothing
    stop: Callable[[], Awaitable[None]] = do_nothing
    ready: Callable[[], bool] = lambda: True


class Parts:
    """The parts of one process."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._started: list[Part] = []
        self._serving = False

    @property
    def ready(self) -> bool:
        """Return whether all parts have started and are ready, and `stop` has not been called."""
        return self._serving and all(part.ready() for part in self._parts)

    async def start(self) -> None:
        """Start every part. If one fails, stop those before it. Raise StartError for errors in the environment."""
        try:
            for part in self._parts:
                await _start(part)
                self._started.append(part)
        except BaseException:
            await self.stop()
            raise
        self._serving = True

    async def stop(self) -> None:
        """Stop the started parts in reverse order. If a part fails to stop, log the error and stop the others."""
        self._serving = False
        while self._started:
            part = self._started.pop()
            try:
                await part.stop()
            except Exception:
                _log.exception("cannot stop %s", part.name)


async def _start(part: Part) -> None:
    try:
        await part.start()
    except OSError as error:
        raise StartError(f"cannot start {part.name}: {error.strerror or error}") from error
    except MemoryError as error:
        raise StartError(f"cannot start {part.name}: out of memory") from error
