"""A process is a list of parts: they start in order, stop in reverse, and the process is ready when every part is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pilot.lib.log import scope
from pilot.lib.start_error import StartError

_log = scope("default")


async def nothing() -> None:
    """Starts or stops a part that needs no more than to be there."""


class Part(NamedTuple):
    """`start` returns when the part works, and leaves nothing behind where it raises. `stop` is called once, and only after a start.
    `ready` says whether the part can be relied upon, for parts that go on preparing after their start."""

    name: str
    start: Callable[[], Awaitable[None]] = nothing
    stop: Callable[[], Awaitable[None]] = nothing
    ready: Callable[[], bool] = lambda: True


class Parts:
    """The parts of one process."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._started: list[Part] = []
        self._serving = False

    @property
    def ready(self) -> bool:
        """Returns whether all parts have started and are ready, and no stop has begun."""
        return self._serving and all(part.ready() for part in self._parts)

    async def start(self) -> None:
        """Starts every part. Where one cannot start, those before it are stopped; StartError where the world is to blame."""
        try:
            for part in self._parts:
                await _start(part)
                self._started.append(part)
        except BaseException:
            await self.stop()
            raise
        self._serving = True

    async def stop(self) -> None:
        """Stops what was started, the last part first. A part that fails to stop is logged and keeps none of the others from it."""
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
        raise StartError(f"cannot start {part.name}: there is not enough memory") from error
