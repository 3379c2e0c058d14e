"""Runs jobs periodically, and defines the small jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pilot.envoy.plans.patch_problems import patch_results
from pilot.ingest.batch import Clock, Timer
from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.proxies.patches import configured_patch
from pilot.mesh.tables.database import Mesh

# Names of the patched objects in istiod's metric. It has no others.
_PATCH_TYPES = {
    "CLUSTER": "cluster",
    "LISTENER": "listener",
    "LISTENER_FILTER": "listenerfilter",
    "FILTER_CHAIN": "filterchain",
    "NETWORK_FILTER": "networkfilter",
    "HTTP_FILTER": "httpfilter",
    "ROUTE_CONFIGURATION": "route",
    "HTTP_ROUTE": "route",
    "VIRTUAL_HOST": "vhost",
}
_PatchSeries = tuple[str, str, str]
_log = scope("default")


class PeriodicJobs:
    """Runs each job every `seconds`.

    The error of a job that fails is logged, and the job runs again in the next period. A job that returns an iterator
    runs in steps, and the event loop handles other events in between. The next job starts when all steps are finished.
    """

    def __init__(self, clock: Clock, seconds: float, jobs: Sequence[Callable[[], Any]]) -> None:
        self._clock, self._seconds, self._jobs = clock, seconds, jobs
        self._timer: Timer | None = None

    async def start(self) -> None:
        self._timer = self._clock.call_later(self._seconds, self._run)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        self._continue(self._steps())

    def _continue(self, steps: Iterator[None]) -> None:
        """Run one step and schedule the next one. After the last step, schedule the next period."""
        is_finished = next(steps, steps) is steps
        self._timer = (
            self._clock.call_later(self._seconds, self._run)
            if is_finished
            else self._clock.call_later(0, lambda: self._continue(steps))
        )

    def _steps(self) -> Iterator[None]:
        for job in self._jobs:
            try:
                result = job()
                if isinstance(result, Iterator):
                    yield from result
            except Exception:
                _log.exception("a periodic job failed")


class MallocTrimmer:
    """A job that returns unused memory to the system.

    It runs in a thread. Meanwhile, larger allocations of the event loop wait, about 1 ms for 2,000 free blocks.
    """

    def __init__(self, trim: Callable[[int], object] | None) -> None:
        self._trim = trim

    def __call__(self) -> None:
        if self._trim is not None:
            asyncio.get_running_loop().run_in_executor(None, self._trim, 0)


class MemoryRelease:
    """A job that runs the steps of `free`, and then trims the memory if there were any."""

    def __init__(self, free: Callable[[], Iterator[None]], trim: Callable[[], None]) -> None:
        self._free, self._trim = free, trim

    def __call__(self) -> Iterator[None]:
        freed_much = False
        for _ in self._free():
            freed_much = True
            yield
        if freed_much:
            self._trim()


class PatchMetrics:
    """A job that reports the results of EnvoyFilter patches in istiod's metric. PILOT_ENVOY_FILTER_STATS enables it."""

    def __init__(self, db: Mesh, metrics: Metrics) -> None:
        self._db, self._metrics = db, metrics
        self._reported: frozenset[_PatchSeries] = frozenset()

    def check(self) -> None:
        """Report the results. A series that no longer applies is set to 0."""
        current = frozenset(self._series())
        for series in self._reported - current:
            self._metrics.envoy_filter(*series, 0)
        for series in current - self._reported:
            self._metrics.envoy_filter(*series, 1)
        self._reported = current

    def _series(self) -> list[_PatchSeries]:
        series = []
        for key, applied in patch_results(self._db).items():
            patch = configured_patch(self._db, key)
            if patch is not None and (patch_type := _PATCH_TYPES.get(patch.apply_to)):
                name = f"{key.filter.namespace}/{key.filter.name}"
                series.append((name, patch_type, "applied" if applied else "error"))
        return series
