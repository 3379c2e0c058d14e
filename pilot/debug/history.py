"""Measurements of the last hour, in bounded memory, so that charts have a past when a page is opened."""

from __future__ import annotations

import os
import pathlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

PERIOD = 10.0
"""Seconds between two points."""
KEPT = 360
"""Maximum number of points: an hour."""
STEP = 500
"""Number of streams that are counted before the event loop may handle other events."""
_STATM = pathlib.Path("/proc/self/statm")


class Point(NamedTuple):
    """Measurements at a point in time, in Unix seconds.

    `responses`, `bytes` and `cpu` (in seconds) are totals since the process started. `memory` is in bytes.
    """

    time: float
    proxies: int
    waiting: int
    refusing: int
    responses: int
    bytes: int
    cpu: float
    memory: int
    changes: int


class _Sync(Protocol):
    @property
    def nonce_sent(self) -> str: ...
    @property
    def nonce_acked(self) -> str: ...
    @property
    def last_error(self) -> str: ...


class _Stream(Protocol):
    @property
    def subscriptions(self) -> Mapping[str, _Sync]: ...


class _Counters(Protocol):
    responses: int
    response_bytes: int


class History:
    """The points of the last hour. `sample` adds a point."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.points: deque[Point] = deque(maxlen=KEPT)
        self.number = 0
        """The number of points so far."""

    def sample(self, streams: Sequence[_Stream], counters: _Counters, changes: int) -> Iterator[None]:
        """Add a point, in steps. Between two steps, the event loop handles other events."""
        waiting = refusing = 0
        for number, stream in enumerate(streams, 1):
            watches = stream.subscriptions.values()
            if any(watch.last_error for watch in watches):
                refusing += 1
            elif any(watch.nonce_sent != watch.nonce_acked for watch in watches):
                waiting += 1
            if not number % STEP:
                yield
        self.points.append(
            Point(
                self._now(),
                len(streams),
                waiting,
                refusing,
                counters.responses,
                counters.response_bytes,
                time.process_time(),
                resident_memory(),
                changes,
            )
        )
        self.number += 1


def resident_memory() -> int:
    """Return the resident memory of this process in bytes, or 0 if it is unknown."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
