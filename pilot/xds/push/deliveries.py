"""Deliveries of changes to one stream, from the commit of a change to the proxy's response.

A change is delivered when the proxy has acknowledged every response that the change caused. A response that follows
them does not delay this. If the recomputed resources are equal, there is nothing to deliver.

A refusal of a type ends when the proxy has acknowledged later responses with all resources that it rejected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from pilot.lib.text import cut
from pilot.lib.xds_types import LISTENER, ROUTE, find_type, short_name

_TOO_MANY = "too many changes were refused"
State = Literal["acknowledged", "nacked", "unchanged"]
MAX_EVENTS = 1000
"""Maximum number of events that wait, and of refused events. Older ones are not told apart from each other."""
MAX_RESPONSES = 64
"""Maximum number of responses of a type whose nonces are recognised. A proxy responds in order."""
MAX_REASON = 300
"""Maximum length of the reason of a refusal, in characters."""
NO_ROUTES_SECONDS = 1.0
"""Seconds without a message after which a proxy with listeners has received its first configuration. Envoy requests the
routes of its listeners immediately."""
NO_LISTENERS_SECONDS = 5.0
"""The same for a proxy that has requested no listeners."""


class Answered(NamedTuple):
    """Events to which a proxy has completely responded."""

    events: tuple[int, ...]
    state: State


class _Sent(NamedTuple):
    """A response: its nonce, its number, the names of its resources, and whether the proxy drops all others."""

    nonce: str
    number: int
    names: Callable[[], Iterable[str]]
    is_whole: bool


class _Batch:
    """Events that are processed together.

    needs: The first and the last response of each type that they caused, as numbers of the stream's responses.
    refusals: The reasons of refusals, by type.
    is_open: Whether more responses belong to the batch.
    has_sent: Whether they caused a response.
    is_partial: Whether the batch includes older events that are not in `events`.
    """

    __slots__ = ("events", "has_sent", "is_open", "is_partial", "needs", "refusals")

    def __init__(self) -> None:
        self.events: deque[int] = deque(maxlen=MAX_EVENTS)
        self.needs: dict[str, tuple[int, int]] = {}
        self.refusals: dict[str, str] = {}
        self.is_open, self.has_sent, self.is_partial = True, False, False

    def add(self, event: int) -> None:
        self.is_partial = self.is_partial or len(self.events) == MAX_EVENTS
        self.events.append(event)

    def includes(self, event: int) -> bool:
        return event in self.events or (self.is_partial and event <= self.events[-1])


class Deliveries:
    """The changes that affect a stream and to which its proxy has not completely responded.

    refusals: The reasons for each event that the proxy has refused, by type.
    start_refusal: The reason for which the proxy has refused a part of its first configuration, or "".
    """

    __slots__ = (
        "_batches",
        "_current",
        "_forgotten",
        "_has_listeners",
        "_has_started",
        "_next",
        "_number",
        "_rejected",
        "_sent",
        "refusals",
        "start_refusal",
    )

    def __init__(self) -> None:
        self._next: _Batch | None = None
        self._batches: list[_Batch] = []
        self._current: _Batch | None = None
        self._sent: dict[str, deque[_Sent]] = {}
        self._rejected: dict[str, set[str]] = {}
        self._number = self._forgotten = 0
        self._has_started = self._has_listeners = False
        self.refusals: dict[int, dict[str, str]] = {}
        self.start_refusal = ""

    # -- progress ------------------------------------------------------------------------------------------------------

    def add(self, event: int) -> None:
        """Add an event that affects the stream. Responses that are written from now on may be caused by it."""
        if self._next is None:
            self._next = _Batch()
        self._next.add(event)

    def begin(self) -> None:
        """Start processing the events that wait."""
        if self._next is not None:
            self._batches.append(self._next)
            self._current, self._next = self._next, None
        else:
            self._current = next((batch for batch in reversed(self._batches) if batch.is_open), None)

    def end(self, is_complete: bool) -> None:
        """End processing. If `is_complete` is false, responses that the events caused are held back."""
        self._current = None
        if is_complete:
            for batch in self._batches:
                batch.is_open = False

    def on_sent(self, type_url: str, nonce: str, names: Callable[[], Iterable[str]], is_whole: bool = False) -> None:
        """Record that a response is being written. `names` returns the names of its resources.

        `is_whole` says whether the proxy drops all other resources of the type.
        """
        causes = [batch for batch in self._batches if batch.is_open]
        if self._next is not None:
            causes.append(self._next)
        for batch in causes:
            batch.has_sent = True
        if not find_type(type_url).has_nonces:
            return
        self._number += 1
        sent = self._sent.get(type_url)
        if sent is None:
            sent = self._sent[type_url] = deque(maxlen=MAX_RESPONSES)
        sent.append(_Sent(nonce, self._number, names, is_whole))
        for batch in causes:
            batch.needs[type_url] = batch.needs.get(type_url, (self._number,))[0], self._number

    def on_response(self, type_url: str, nonce: str, error: str | None = None) -> None:
        """Record that a proxy has acknowledged a response or, with an error, rejected it.

        An acknowledgement includes the earlier responses of the type that were not rejected.
        """
        response = self._take_sent(type_url, nonce)
        if response is None:
            return
        number = response.number
        reason = f"{short_name(type_url)}: {cut(error, MAX_REASON)}" if error is not None else ""
        self._track_rejected(type_url, response, bool(reason))
        for batch in (*self._batches, *((self._next,) if self._next is not None else ())):
            need = batch.needs.get(type_url)
            if need is None or need[0] > number:
                continue
            if reason:
                batch.refusals.setdefault(type_url, reason)
            if need[1] <= number:
                del batch.needs[type_url]
        if not self._has_started:
            self.start_refusal = self.start_refusal or reason
            self._has_listeners = self._has_listeners or type_url == LISTENER
            self._has_started = type_url == ROUTE and self._has_listeners and not any(self._sent.values())

    def _take_sent(self, type_url: str, nonce: str) -> _Sent | None:
        """Return a response, and remove it and the earlier ones of its type. Return None if it is unknown."""
        sent = self._sent.get(type_url)
        if not sent or not nonce:
            return None
        response = next((one for one in reversed(sent) if one.nonce == nonce), None)
        while response is not None and sent and sent[0].number <= response.number:
            sent.popleft()
        return response

    def _track_rejected(self, type_url: str, response: _Sent, is_rejected: bool) -> None:
        """Record the resources that the proxy has rejected and not acknowledged since."""
        if is_rejected:
            self._rejected.setdefault(type_url, set()).update(response.names())
        elif type_url in self._rejected:
            self._rejected[type_url].difference_update(response.names())
            if response.is_whole or not self._rejected[type_url]:
                self._end_refusals(type_url)

    def _end_refusals(self, type_url: str) -> None:
        """Forget the refusals of a type."""
        self._rejected.pop(type_url, None)
        for refusals in (*(batch.refusals for batch in self._batches), *self.refusals.values()):
            refusals.pop(type_url, None)
        self.refusals = {event: refusals for event, refusals in self.refusals.items() if refusals}
        if not self._rejected:
            self._forgotten = 0

    def drop_type(self, type_url: str) -> None:
        """Expect no more responses of a type, to which the proxy no longer subscribes."""
        self._sent.pop(type_url, None)
        if type_url in self._rejected:
            self._end_refusals(type_url)
        for batch in self._batches:
            batch.needs.pop(type_url, None)

    def take_answered(self) -> list[Answered]:
        """Return, and remove, the events to which the proxy has completely responded."""
        if not self._batches:
            return []
        answered = []
        for batch in [batch for batch in self._batches if not (batch.is_open or batch.needs)]:
            self._batches.remove(batch)
            if batch.refusals:
                self._refuse(batch)
            state: State = "nacked" if batch.refusals else "acknowledged" if batch.has_sent else "unchanged"
            answered.append(Answered(tuple(batch.events), state))
        return answered

    def _refuse(self, batch: _Batch) -> None:
        for event in batch.events:
            self.refusals[event] = dict(batch.refusals)
        while len(self.refusals) > MAX_EVENTS:
            self._forgotten = next(iter(self.refusals))
            del self.refusals[self._forgotten]

    def take_unanswered(self) -> tuple[int, ...]:
        """Return, and remove, the events to which the proxy has not completely responded."""
        events = (*self.processed, *(self._next.events if self._next is not None else ()))
        self._batches.clear()
        self._current = self._next = None
        return events

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def event(self) -> int:
        """Return the last of the events that are being processed, or 0 if there are none."""
        return self._current.events[-1] if self._current is not None else 0

    @property
    def processed(self) -> tuple[int, ...]:
        """Return the events that were at least partly processed and to which the proxy has not completely responded."""
        return tuple(event for batch in self._batches for event in batch.events)

    @property
    def is_settled(self) -> bool:
        """Return whether the proxy has completely responded to all events."""
        return self._next is None and not self._batches

    def waits_for(self, event: int) -> bool:
        """Return whether the proxy has not been sent everything that an event changes."""
        if self._next is not None and self._next.includes(event):
            return True
        return any(batch.is_open and batch.includes(event) for batch in self._batches)

    def is_unanswered(self, event: int) -> bool:
        """Return whether the proxy has not completely responded to an event."""
        return self.waits_for(event) or any(batch.includes(event) for batch in self._batches)

    def refusal(self, event: int) -> str:
        """Return the reason for which the proxy has refused an event, or "" if it has not refused it.

        Of the oldest refused events, only the last is known. Earlier events may have been refused too.
        """
        reasons = self.refusals.get(event)
        if reasons is not None:
            return next(iter(reasons.values()))
        return _TOO_MANY if 0 < event <= self._forgotten else ""

    def check_start(self, idle_seconds: float) -> bool:
        """Return whether the proxy has responded to its first configuration.

        Envoy requests clusters, then listeners, then their routes. `idle_seconds` is the time since the last message,
        or 0.0 if a response waits to be sent.
        """
        if not self._has_started and not any(self._sent.values()):
            limit = NO_ROUTES_SECONDS if self._has_listeners else NO_LISTENERS_SECONDS
            self._has_started = idle_seconds >= limit
        return self._has_started
