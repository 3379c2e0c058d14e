"""When a certificate is renewed, and how long after a failure the next attempt comes."""

from __future__ import annotations

import datetime
from collections.abc import Callable

SHORTEST, LONGEST = 0.1, 10.0
"""Seconds before the next attempt after the first failure, and after many."""
SKEW = datetime.timedelta(minutes=2)
"""How far authorities set the beginning of a life back, for clocks that are late."""


def seconds_until_renewal(
    begins: datetime.datetime,
    ends: datetime.datetime,
    now: datetime.datetime,
    ratio: float,
    jitter: float,
    random: Callable[[], float],
) -> float:
    """Returns the seconds from `now` to the time at which `ratio` of the life is left, 0 where that has passed. `random` gives numbers
    from 0 to 1, which change the ratio by `jitter` at most; 0 and 1 bound what comes out. What an authority dated back is no life."""
    life = (ends - max(begins, min(begins + SKEW, now))).total_seconds()
    left = min(1.0, max(0.0, ratio + jitter * (2 * random() - 1)))
    return max(0.0, (ends - now).total_seconds() - life * left)


def seconds_until_retry(failures: int, random: Callable[[], float]) -> float:
    """Returns the seconds to wait after that many failures in a row: twice as long each time up to `LONGEST`, of which up to half is
    taken away at random, so that the proxies of a mesh do not come at once."""
    longest = min(LONGEST, SHORTEST * 2 ** min(failures - 1, 16))
    return float(longest * (1 - random() / 2))
