"""What is done again and again while the process runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pilot.ingest.batch import Clock, Timer
from pilot.lib.log import scope

_log = scope("default")


class Sweeper:
    """Calls every job once in `seconds`. A job that fails is logged; it and the others are called again the next time. One that returns an iterator
    is done in steps, between which others have their turn; the jobs after it are called when it has ended."""

    def __init__(self, clock: Clock, seconds: float, jobs: Sequence[Callable[[], Any]]) -> None:
        self._clock, self._seconds, self._jobs = clock, seconds, jobs
        self._timer: Timer | None = None

    async def start(self) -> None:
        self._timer = self._clock.call_later(self._seconds, self._sweep)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._go_on(self._steps())

    def _go_on(self, steps: Iterator[None]) -> None:
        """Does one step, and the others after it in turns of their own; after the last one the next sweep is waited for."""
        is_over = next(steps, steps) is steps
        self._timer = (
            self._clock.call_later(self._seconds, self._sweep)
            if is_over
            else self._clock.call_later(0, lambda: self._go_on(steps))
        )

    def _steps(self) -> Iterator[None]:
        for job in self._jobs:
            try:
                done = job()
                if isinstance(done, Iterator):
                    yield from done
            except Exception:
                _log.exception("a sweep failed")
