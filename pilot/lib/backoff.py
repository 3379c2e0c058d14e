"""Exponential backoff with jitter."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """The initial and the maximum delay between attempts, in seconds."""

    initial: float = 0.2
    maximum: float = 30.0


class RetryDelays:
    """Delays between consecutive failed attempts. The delay doubles with each failure, and has jitter."""

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self._backoff, self._rng = backoff, rng
        self.failures = 0

    def reset(self) -> None:
        """Return to the initial delay. Call this after a success."""
        self.failures = 0

    def next_delay(self, at_least: float = 0.0) -> float:
        """Count a failure, and return the seconds to wait: a random value from half of the current delay to all of it.

        `at_least` is the minimum, such as the value of a Retry-After header.
        """
        longest = min(self._backoff.initial * 2.0 ** min(self.failures, 30), self._backoff.maximum)
        self.failures += 1
        return max(longest * self._rng.uniform(0.5, 1.0), at_least)
