"""Measures slices of computations that are interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE_SECONDS = 0.01


def time_slice(seconds: float = SLICE_SECONDS) -> Callable[[], bool]:
    """Return a function that tells whether `seconds` have passed.

    After its first call, which follows the first part of the computation, half of them remain at least, so that each
    slice makes progress.
    """
    started, end = time.monotonic(), 0.0

    def is_over() -> bool:
        nonlocal end
        now = time.monotonic()
        if not end:
            end = max(started + seconds, now + seconds / 2)
        return now >= end

    return is_over
