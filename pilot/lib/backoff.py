"""How long to wait before the next attempt: twice as long each time, and somewhat random, so that many do not come back together."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """Seconds of the first wait and of the longest."""

    first: float = 0.2
    longest: float = 30.0


class RetryDelays:
    """The waits between attempts that fail one after another."""

    def __init__(self, backoff: Backoff, choose: random.Random) -> None:
        self._backoff, self._choose = backoff, choose
        self.failed = 0

    def succeeded(self) -> None:
        """Begins anew."""
        self.failed = 0

    def wait(self, at_least: float = 0.0) -> float:
        """Returns the seconds to wait after one more failure: of the doubled time at least half, and not less than the server asked for."""
        longest = min(self._backoff.first * 2.0 ** min(self.failed, 30), self._backoff.longest)
        self.failed += 1
        return max(longest * self._choose.uniform(0.5, 1.0), at_least)
