"""Measures slices of computations that are interrupted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SLICE_SECONDS = 0.01


def time_slice(seconds: float = SLICE_SECONDS) -> Callable[[], bool]:
    """Return a function that tells whether `seconds` have passed since its first call.

    The first call follows the first part of the computation, so that each slice makes progress.
    """
    end = math.inf

    def is_over() -> bool:
        nonlocal end
        now = time.monotonic()
        end = min(end, now + seconds)
        return now >= end

    return is_over
