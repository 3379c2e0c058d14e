"""Tracks events from their commit to the proxies' acknowledgements.

An event is a commit that affects at least one proxy. It is identified by a number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from pilot.xds.push.deliveries import State

MAX_EVENTS = 1000
"""Maximum number of tracked events. If there are more, the outcome of the oldest is reported although it is incomplete.
"""


def ignore_delivery(seconds: float) -> None:
    """Ignore a delivery."""


class EventOutcome(NamedTuple):
    """The outcome of an event.

    proxies: Number of proxies whose configuration was computed again.
    acknowledged: Number of these proxies that acknowledged all responses that the event caused.
    nacked: Number of proxies that rejected at least one of these responses.
    disconnected: Number of proxies that disconnected before they responded.
    seconds: Time from the commit until the last proxy responded.
    seconds_99: Time from the commit until 99 percent of the proxies had responded, or 0.0 before that.
    unchanged: Number of proxies whose configuration came out equal, so nothing was sent.
    seconds_50: Time from the commit until half of the proxies had responded, or 0.0 before that.
    """

    event: int
    proxies: int
    acknowledged: int
    nacked: int
    disconnected: int
    seconds: float
    seconds_99: float = 0.0
    unchanged: int = 0
    seconds_50: float = 0.0

    @property
    def affected(self) -> int:
        """Return the number of proxies that the event changes, as far as this is known."""
        return self.proxies - self.unchanged

    @property
    def responded(self) -> int:
        """Return the number of proxies that have responded or disconnected."""
        return self.acknowledged + self.nacked + self.disconnected

    @property
    def is_complete(self) -> bool:
        """Return whether every proxy has responded or disconnected."""
        return self.responded >= self.affected


class _Entry(NamedTuple):
    """An event in progress. Times are in monotonic seconds. `since` is the time of the event's first edit."""

    outcome: EventOutcome
    began_at: float
    since: float


class EventProgress:
    """All events in progress.

    `on_outcome` is called with the outcome of each event. `on_delivered` is called for each proxy that an event
    changes, with the seconds from the event's first edit to the proxy's response.
    """

    def __init__(
        self,
        on_outcome: Callable[[EventOutcome], None],
        now: Callable[[], float] = time.monotonic,
        on_delivered: Callable[[float], None] = ignore_delivery,
    ) -> None:
        self._on_outcome, self._now, self._on_delivered = on_outcome, now, on_delivered
        self._events: dict[int, _Entry] = {}

    def begin(self, event: int, proxies: int, age: float = 0.0) -> None:
        """Start tracking an event. `proxies` is the number of proxies that it may affect, and `age` the seconds since
        its first edit."""
        if not proxies:
            return
        now = self._now()
        self._events[event] = _Entry(EventOutcome(event, proxies, 0, 0, 0, 0.0), now, now - age)
        if len(self._events) > MAX_EVENTS:
            self._finish(next(iter(self._events)))

    def find(self, event: int) -> EventOutcome | None:
        """Return the current outcome of an event in progress, or None if it has finished."""
        entry = self._events.get(event)
        return entry.outcome._replace(seconds=self._now() - entry.began_at) if entry is not None else None

    def count_response(self, events: Iterable[int], state: State | Literal["disconnected"]) -> None:
        """Record how a proxy has responded to all consequences of some events, or that it disconnected before that."""
        for event in events:
            entry = self._events.get(event)
            if entry is not None:
                self._count(event, entry, state)

    def _count(self, event: int, entry: _Entry, state: State | Literal["disconnected"]) -> None:
        now, outcome = self._now(), entry.outcome
        if state == "acknowledged":
            self._on_delivered(now - entry.since)
            outcome = outcome._replace(acknowledged=outcome.acknowledged + 1)
        elif state == "nacked":
            outcome = outcome._replace(nacked=outcome.nacked + 1)
        elif state == "unchanged":
            outcome = outcome._replace(unchanged=outcome.unchanged + 1)
        else:
            outcome = outcome._replace(disconnected=outcome.disconnected + 1)
        if outcome.responded:
            seconds = now - entry.began_at
            if not outcome.seconds_50 and 2 * outcome.responded >= outcome.affected:
                outcome = outcome._replace(seconds_50=seconds)
            if not outcome.seconds_99 and 100 * outcome.responded >= 99 * outcome.affected:
                outcome = outcome._replace(seconds_99=seconds)
        self._events[event] = entry._replace(outcome=outcome)
        if outcome.is_complete:
            self._finish(event)

    def _finish(self, event: int) -> None:
        entry = self._events.pop(event)
        self._on_outcome(entry.outcome._replace(seconds=self._now() - entry.began_at))
