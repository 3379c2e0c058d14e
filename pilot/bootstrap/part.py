"""A process as a list of parts, which start in order and stop in reverse. It is ready when all parts are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError

_log = scope("default")


async def do_nothing() -> None:
    """Start or stop a part that needs neither."""


class Part(NamedTuple):
    """A part of a process.

    start: Returns when the part works. If it raises, it leaves nothing behind.
    stop: Called once, and only after a successful start.
    ready: Whether the part works. Some parts continue to prepare after their start.
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
        """Start every part. If one fails, stop those before it. Raise StartError for errors of the environment."""
        try:
            for part in self._parts:
                await _start(part)
                self._started.append(part)
        except BaseException:
            await self.stop()
            raise
        self._serving = True

    async def stop(self) -> None:
        """Stop the started parts in reverse order. A part that fails to stop is logged, and the others still stop."""
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
