"""Memory and task metrics with the names of Go's runtime metrics, which istiod's dashboards show."""

from __future__ import annotations

import asyncio
import sys
import time

from pilot.lib.metrics.series import Series
from pilot.lib.process_status import process_status

TASKS_SECONDS = 30.0
"""Number of seconds between two counts of the tasks. With thousands of streams, counting them is slow."""


class RuntimeMetrics:
    """Updates the metrics whenever they are read.

    Totals are lower bounds, because memory that is allocated and freed between two reads is not counted.
    """

    def __init__(self, series: Series) -> None:
        self._at = series.at
        self._heap = self._objects = self._tasks = 0
        self._tasks_until = 0.0
        series.before_reading(self._update)

    def _update(self) -> None:
        status = process_status()
        heap, stack = 1024 * status.get("RssAnon", 0), 1024 * status.get("VmStk", 0)
        for name in ("alloc_bytes", "heap_alloc_bytes", "heap_inuse_bytes", "heap_sys_bytes"):
            self._at(f"go_memstats_{name}").set(heap)
        self._at("go_memstats_stack_inuse_bytes").set(stack)
        self._at("go_memstats_stack_sys_bytes").set(stack)
        self._at("go_memstats_sys_bytes").set(1024 * status.get("VmRSS", 0))
        objects = sys.getallocatedblocks()
        self._at("go_memstats_heap_objects").set(objects)
        self._at("go_memstats_alloc_bytes_total").inc(max(0, heap - self._heap))
        self._at("go_memstats_mallocs_total").inc(max(0, objects - self._objects))
        self._heap, self._objects = heap, objects
        threads = status.get("Threads", 1)
        self._at("go_threads").set(threads)
        if (now := time.monotonic()) >= self._tasks_until:
            self._tasks, self._tasks_until = _count_tasks(), now + TASKS_SECONDS
        self._at("go_goroutines").set(threads + self._tasks)


def _count_tasks() -> int:
    """Return the number of tasks in the running event loop, or 0 if no event loop is running."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
