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


class _Entry:
    """An event in progress: its counts and times so far. Times are in monotonic seconds.

    `since` is the time of the event's first edit. The other attributes are those of `EventOutcome`.
    """

    __slots__ = (
        "acknowledged",
        "began_at",
        "disconnected",
        "nacked",
        "proxies",
        "seconds_50",
        "seconds_99",
        "since",
        "unchanged",
    )

    def __init__(self, proxies: int, began_at: float, since: float) -> None:
        self.proxies, self.began_at, self.since = proxies, began_at, since
        self.acknowledged = self.nacked = self.disconnected = self.unchanged = 0
        self.seconds_50 = self.seconds_99 = 0.0

    def outcome(self, event: int, now: float) -> EventOutcome:
        return EventOutcome(
            event,
            self.proxies,
            self.acknowledged,
            self.nacked,
            self.disconnected,
            now - self.began_at,
            self.seconds_99,
            self.unchanged,
            self.seconds_50,
        )

    def advance(self, now: float) -> bool:
        """Set the times that have passed by now. Return whether every proxy has responded or disconnected."""
        responded, affected = self.acknowledged + self.nacked + self.disconnected, self.proxies - self.unchanged
        if responded and not self.seconds_99:
            if not self.seconds_50 and 2 * responded >= affected:
                self.seconds_50 = now - self.began_at
            if 100 * responded >= 99 * affected:
                self.seconds_99 = now - self.began_at
        return responded >= affected


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
        self._events[event] = _Entry(proxies, now, now - age)
        if len(self._events) > MAX_EVENTS:
            self._finish(next(iter(self._events)))

    def find(self, event: int) -> EventOutcome | None:
        """Return the current outcome of an event in progress, or None if it has finished."""
        entry = self._events.get(event)
        return entry.outcome(event, self._now()) if entry is not None else None

    def count_response(self, events: Iterable[int], state: State | Literal["disconnected"]) -> None:
        """Record how a proxy has responded to all consequences of some events, or that it disconnected before that."""
        now = self._now()
        for event in events:
            entry = self._events.get(event)
            if entry is None:
                continue
            if state == "acknowledged":
                entry.acknowledged += 1
                self._on_delivered(now - entry.since)
            elif state == "nacked":
                entry.nacked += 1
            elif state == "unchanged":
                entry.unchanged += 1
            else:
                entry.disconnected += 1
            if entry.advance(now):
                self._finish(event)

    def _finish(self, event: int) -> None:
        self._on_outcome(self._events.pop(event).outcome(event, self._now()))
