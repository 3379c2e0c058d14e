"""Memory and tasks of the process under the names that Go's runtime has for them, which dashboards of istiod show."""

from __future__ import annotations

import asyncio
import sys
import time

from pilot.lib.process_status import process_status
from pilot.lib.series import Series

TASKS_SECONDS = 30.0
"""Tasks are counted again after so many seconds: with thousands of streams that takes longer than everything else here."""


class RuntimeMetrics:
    """Is asked whenever the metrics are read. What is allocated and freed again between two readings is not known: the totals are lower bounds."""

    def __init__(self, series: Series) -> None:
        self._at = series.at
        self._heap = self._objects = self._tasks = 0
        self._tasks_until = 0.0
        series.before_reading(self._tell)

    def _tell(self) -> None:
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
    """Returns the number of tasks of the running event loop; 0 where none runs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
