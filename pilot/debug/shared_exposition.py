"""The metrics in Prometheus' format, shared by requests that arrive at almost the same time."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

REUSE = 10.0
"""Time for which an exposition is reused, in multiples of the time that it took.

Metrics therefore use at most a tenth of a core, regardless of the number of requests.
"""
MAX_REUSE = 1.0
"""Maximum time for which an exposition is reused, in seconds. Scrapers wait longer between two requests."""


class SharedExposition:
    """The latest exposition of the metrics. `compute` returns a new one, and `now` the monotonic time."""

    def __init__(self, compute: Callable[[], bytes], now: Callable[[], float] = time.monotonic) -> None:
        self._compute, self._now = compute, now
        self._bodies: dict[bool, bytes] = {}
        self._expires_at = float("-inf")

    def body(self, compressed: bool) -> bytes:
        """Return the metrics, compressed with gzip if requested."""
        started_at = self._now()
        if started_at >= self._expires_at:
            self._bodies = {False: self._compute()}
        if compressed not in self._bodies:
            self._bodies[compressed] = gzip.compress(self._bodies[False], 6)
        ended_at = self._now()
        self._expires_at = max(self._expires_at, ended_at + min(REUSE * (ended_at - started_at), MAX_REUSE))
        return self._bodies[compressed]
