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
    """

    event: int
    proxies: int
    acknowledged: int
    nacked: int
    disconnected: int
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Return whether every proxy has responded or disconnected."""
        return self.acknowledged + self.nacked + self.disconnected >= self.proxies


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
        self._events[event] = outcome, began_at
        if outcome.is_complete:
            self._finish(event)

    def _finish(self, event: int) -> None:
        outcome, began_at = self._events.pop(event)
        self._on_outcome(outcome._replace(seconds=self._now() - began_at))
