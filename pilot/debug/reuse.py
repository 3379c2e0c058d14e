"""Reuse of results by requests that arrive at almost the same time."""

from __future__ import annotations

import time
from collections.abc import Callable

REUSE = 10.0
"""Time for which a result is reused, in multiples of the time that it took.

It therefore uses at most a tenth of a core, regardless of the number of requests.
"""
MAX_REUSE = 1.0
"""Maximum time for which a result is reused, in seconds. Scrapers wait longer between two requests."""


class Reuse:
    """The time until which the latest result is reused. `now` returns the monotonic time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started_at = self._expires_at = float("-inf")

    def must_compute(self) -> bool:
        """Return whether the latest result has expired. A computation then starts."""
        self._started_at = self._now()
        return self._started_at >= self._expires_at

    def end(self) -> None:
        """Reuse a result whose computation has just ended."""
        now = self._now()
        self._expires_at = max(self._expires_at, now + min(REUSE * (now - self._started_at), MAX_REUSE))
