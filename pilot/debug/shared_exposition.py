"""The metrics in Prometheus' format, shared by requests that arrive at almost the same time."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

from pilot.debug.reuse import Reuse


class SharedExposition:
    """The latest exposition of the metrics. `compute` returns a new one, and `now` the monotonic time."""

    def __init__(self, compute: Callable[[], bytes], now: Callable[[], float] = time.monotonic) -> None:
        self._compute, self._reuse = compute, Reuse(now)
        self._bodies: dict[bool, bytes] = {}

    def body(self, compressed: bool) -> bytes:
        """Return the metrics, compressed with gzip if requested."""
        if self._reuse.must_compute():
            self._bodies = {False: self._compute()}
        if compressed not in self._bodies:
            self._bodies[compressed] = gzip.compress(self._bodies[False], 6)
        self._reuse.end()
        return self._bodies[compressed]
