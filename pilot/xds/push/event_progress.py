"""Tracks events from their commit to the proxies' acknowledgements.

An event is a commit that affects at least one proxy. It is identified by a number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

MAX_EVENTS = 1000
"""Maximum number of tracked events. If there are more, the outcome of the oldest is reported although it is incomplete.
"""


class EventOutcome(NamedTuple):
    """The outcome of an event.

    proxies: Number of affected proxies.
    acknowledged: Number of affected proxies that acknowledged all responses that the event caused.
    nacked: Number of affected proxies that rejected at least one of these responses.
    disconnected: Number of affected proxies that disconnected before they responded.
    seconds: Time from the commit until the last proxy responded.
    seconds_99: Time from the commit until 99 percent of the proxies had responded, or 0.0 before that.
    """

    event: int
    proxies: int
    acknowledged: int
    nacked: int
    disconnected: int
    seconds: float
    seconds_99: float = 0.0

    @property
    def responded(self) -> int:
        """Return the number of proxies that have responded or disconnected."""
        return self.acknowledged + self.nacked + self.disconnected

    @property
    def is_complete(self) -> bool:
        """Return whether every proxy has responded or disconnected."""
        return self.responded >= self.proxies


class EventProgress:
    """All events in progress. `on_outcome` is called with the outcome of each event."""

    def __init__(self, on_outcome: Callable[[EventOutcome], None], now: Callable[[], float] = time.monotonic) -> None:
        self._on_outcome, self._now = on_outcome, now
        self._events: dict[int, tuple[EventOutcome, float]] = {}

    def begin(self, event: int, proxies: int) -> None:
        """Start tracking an event. `proxies` is the number of affected proxies."""
        if not proxies:
            return
        self._events[event] = EventOutcome(event, proxies, 0, 0, 0, 0.0), self._now()
        if len(self._events) > MAX_EVENTS:
            self._finish(next(iter(self._events)))

    def find(self, event: int) -> EventOutcome | None:
        """Return the current outcome of an event in progress, or None if it has finished."""
        entry = self._events.get(event)
        return entry[0]._replace(seconds=self._now() - entry[1]) if entry is not None else None

    def count_response(self, events: tuple[int, ...], has_nacked: bool) -> None:
        """Record that a proxy has responded to all consequences of some events, and whether it rejected any of them."""
        for event in events:
            self._count(event, "nacked" if has_nacked else "acknowledged")

    def count_disconnect(self, events: tuple[int, ...]) -> None:
        """Record that a proxy disconnected before it had responded to all consequences of some events."""
        for event in events:
            self._count(event, "disconnected")

    def _count(self, event: int, field: str) -> None:
        entry = self._events.get(event)
        if entry is None:
            return
        outcome, began_at = entry
        outcome = outcome._replace(**{field: getattr(outcome, field) + 1})
        if outcome.is_complete:
            self._events[event] = outcome, began_at
            self._finish(event)
            return
        if not outcome.seconds_99 and 100 * outcome.responded >= 99 * outcome.proxies:
            outcome = outcome._replace(seconds_99=self._now() - began_at)
        self._events[event] = outcome, began_at

    def _finish(self, event: int) -> None:
        outcome, began_at = self._events.pop(event)
        seconds = self._now() - began_at
        if outcome.is_complete and not outcome.seconds_99:
            outcome = outcome._replace(seconds_99=seconds)
        self._on_outcome(outcome._replace(seconds=seconds))
