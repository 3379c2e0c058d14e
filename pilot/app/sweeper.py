"""What is done again and again while the process runs."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pilot.ingest.batch import Clock, Timer
from pilot.lib.log import scope

_log = scope("default")


class Sweeper:
    """Calls every job once in `seconds`. A job that fails is logged; it and the others are called again the next time."""

    def __init__(self, clock: Clock, seconds: float, jobs: Sequence[Callable[[], Any]]) -> None:
        self._clock, self._seconds, self._jobs = clock, seconds, jobs
        self._timer: Timer | None = None

    async def start(self) -> None:
        self._timer = self._clock.call_later(self._seconds, self._sweep)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._timer = self._clock.call_later(self._seconds, self._sweep)
        for job in self._jobs:
            try:
                job()
            except Exception:
                _log.exception("a sweep failed")
