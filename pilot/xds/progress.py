"""Follows events from their commit to the proxies that acknowledged them: an event is a commit that concerns somebody, and has a number."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

KEPT = 1000
"""Events that are followed at once; of more, the oldest are told as they are."""


class EventOutcome(NamedTuple):
    """What became of an event: how many proxies it concerned, how many of them have acknowledged all that followed from it, how many refused some
    of it, and how many went away; the seconds until the last of them did."""

    event: int
    proxies: int
    acknowledged: int
    refused: int
    gone: int
    seconds: float

    @property
    def is_whole(self) -> bool:
        """Returns whether every proxy has answered or gone."""
        return self.acknowledged + self.refused + self.gone >= self.proxies


class EventProgress:
    """All events that are on their way. `tell` is called with what became of each."""

    def __init__(self, tell: Callable[[EventOutcome], None], now: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._now = tell, now
        self._events: dict[int, tuple[EventOutcome, float]] = {}

    def begin(self, event: int, proxies: int) -> None:
        """An event concerns so many proxies."""
        if not proxies:
            return
        self._events[event] = EventOutcome(event, proxies, 0, 0, 0, 0.0), self._now()
        if len(self._events) > KEPT:
            self._finish(next(iter(self._events)))

    def acknowledged(self, events: tuple[int, ...], refused: bool) -> None:
        """A proxy has answered all that followed from some events; `refused` says that it did not take all of it."""
        for event in events:
            self._count(event, "refused" if refused else "acknowledged")

    def gone(self, events: tuple[int, ...]) -> None:
        """A proxy went before it had answered all that followed from some events."""
        for event in events:
            self._count(event, "gone")

    def _count(self, event: int, what: str) -> None:
        found = self._events.get(event)
        if found is None:
            return
        outcome, began = found
        outcome = outcome._replace(**{what: getattr(outcome, what) + 1})
        self._events[event] = outcome, began
        if outcome.is_whole:
            self._finish(event)

    def _finish(self, event: int) -> None:
        outcome, began = self._events.pop(event)
        self._tell(outcome._replace(seconds=self._now() - began))
