"""Deliveries of changes to one stream, from the commit of a change to the proxy's response.

A change is delivered when the proxy has acknowledged every response that the change caused. A response that follows
them does not delay this. If the recomputed resources are equal, there is nothing to deliver.

A refusal of a type ends when the proxy has acknowledged later responses with all resources that it rejected.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from pilot.lib.text import cut
from pilot.lib.xds_types import LISTENER, ROUTE, find_type, short_name

_TOO_MANY = "too many changes were refused"
_OPEN = sys.maxsize
"""The number of the last response of a batch to which more responses belong."""
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
    """A response without an answer: its nonce, its number, the names of its resources, whether the proxy drops all
    others, and whether it has resources that the proxy has requested since the previous response.

    `lowest` is the number of the oldest response that its answer includes, because that response's nonce was forgotten.
    """

    nonce: str
    number: int
    lowest: int
    names: Callable[[], Iterable[str]]
    is_whole: bool
    is_requested: bool

    def is_within(self, first: int, last: int) -> bool:
        """Return whether the answer includes a response with one of these numbers."""
        return self.number >= first and self.lowest <= last


class _Batch:
    """Events that are processed together. While they wait and are processed, they cause all responses of the stream.

    first, last: The numbers of these responses. `last` is `_OPEN` while more responses belong to the batch.
    refusals: The reasons of refusals, by type.
    is_partial: Whether the batch includes older events that are not in `events`.
    awaited: The type and number of a response that the batch caused, and that had no answer at the last check.
    """

    __slots__ = ("awaited", "events", "first", "is_partial", "last", "refusals")

    def __init__(self, event: int, first: int) -> None:
        self.events = [event]
        self.first, self.last = first, _OPEN
        self.refusals: dict[str, str] = {}
        self.is_partial = False
        self.awaited = ("", 0)

    def add(self, event: int) -> None:
        if len(self.events) == MAX_EVENTS:
            self.is_partial = True
            del self.events[0]
        self.events.append(event)

    def includes(self, event: int) -> bool:
        return event in self.events or (self.is_partial and event <= self.events[-1])


class Deliveries:
    """The changes that affect a stream and to which its proxy has not completely responded.

    Responses are numbered in the order of their writing. A batch of changes is compared with the responses in flight
    only when it may be complete, so a response costs the same whether or not changes wait for it.

    event: The last of the events that are being processed, or 0 if there are none.
    refusals: The reasons for each event that the proxy has refused, by type.
    start_refusal: The reason for which the proxy has refused a part of its first configuration, or "".
    """

    __slots__ = (
        "_batches",
        "_forgotten",
        "_has_listeners",
        "_has_routes",
        "_has_started",
        "_next",
        "_number",
        "_rejected",
        "_sent",
        "event",
        "refusals",
        "start_refusal",
    )

    def __init__(self) -> None:
        self._next: _Batch | None = None
        self._batches: list[_Batch] = []
        self._sent: dict[str, deque[_Sent]] = {}
        self._rejected: dict[str, set[str]] = {}
        self._number = self._forgotten = self.event = 0
        self._has_started = self._has_listeners = self._has_routes = False
        self.refusals: dict[int, dict[str, str]] = {}
        self.start_refusal = ""

    # -- progress ------------------------------------------------------------------------------------------------------

    def add(self, event: int) -> None:
        """Add an event that affects the stream. Responses that are written from now on may be caused by it."""
        if self._next is None:
            self._next = _Batch(event, self._number + 1)
        else:
            self._next.add(event)

    def begin(self) -> None:
        """Start processing the events that wait."""
        if self._next is not None:
            self._batches.append(self._next)
            self.event, self._next = self._next.events[-1], None
        elif self._batches:
            self.event = next((batch.events[-1] for batch in reversed(self._batches) if batch.last == _OPEN), 0)

    def end(self, is_complete: bool) -> None:
        """End processing. If `is_complete` is false, responses that the events caused are held back."""
        self.event = 0
        if is_complete:
            for batch in self._batches:
                if batch.last == _OPEN:
                    batch.last = self._number

    def on_sent(
        self,
        type_url: str,
        nonce: str,
        names: Callable[[], Iterable[str]],
        is_whole: bool = False,
        is_requested: bool = False,
    ) -> None:
        """Record that a response is being written. `names` returns the names of its resources.

        `is_whole` says whether the proxy drops all other resources of the type, and `is_requested` whether it has
        requested some of the resources since the previous response.
        """
        self._number = number = self._number + 1
        if not find_type(type_url).has_nonces:
            return
        sent = self._sent.get(type_url)
        if sent is None:
            sent = self._sent[type_url] = deque()
        sent.append(_Sent(nonce, number, number, names, is_whole, is_requested))
        if len(sent) > MAX_RESPONSES:
            oldest = sent.popleft()
            is_requested = oldest.is_requested or sent[0].is_requested
            sent[0] = sent[0]._replace(lowest=oldest.lowest, is_requested=is_requested)

    def on_response(self, type_url: str, nonce: str, error: str | None = None) -> None:
        """Record that a proxy has acknowledged a response or, with an error, rejected it.

        An acknowledgement includes the earlier responses of the type that were not rejected.
        """
        taken = self._take_sent(type_url, nonce)
        if not taken:
            return
        reason = ""
        if error is not None:
            reason = f"{short_name(type_url)}: {cut(error, MAX_REASON)}"
            self._reject(type_url, taken, reason)
        elif self._rejected:
            self._track_acknowledged(type_url, taken[-1])
        if not self._has_started:
            self.start_refusal = self.start_refusal or reason
            self._has_listeners = self._has_listeners or type_url == LISTENER
            self._has_routes = self._has_routes or (type_url == ROUTE and self._has_listeners)
            self._has_started = self._has_routes and not self._is_request_in_flight()

    def _is_request_in_flight(self) -> bool:
        """Return whether a response that the proxy has requested has no answer. Other responses are part of a batch."""
        return any(one.is_requested for sent in self._sent.values() for one in sent)

    def _take_sent(self, type_url: str, nonce: str) -> Sequence[_Sent]:
        """Return, and remove, a response and the earlier ones of its type, or () if it is unknown."""
        sent = self._sent.get(type_url)
        if not sent or not nonce:
            return ()
        if sent[0].nonce == nonce:
            return (sent.popleft(),)
        position = next((n for n, one in enumerate(sent) if one.nonce == nonce), -1)
        return [sent.popleft() for _ in range(position + 1)]

    def _reject(self, type_url: str, taken: Sequence[_Sent], reason: str) -> None:
        """Record that the proxy has rejected the last of some responses, and the events that caused any of them."""
        self._rejected.setdefault(type_url, set()).update(taken[-1].names())
        for batch in (*self._batches, *((self._next,) if self._next is not None else ())):
            if any(one.is_within(batch.first, batch.last) for one in taken):
                batch.refusals.setdefault(type_url, reason)

    def _track_acknowledged(self, type_url: str, response: _Sent) -> None:
        """Remove acknowledged resources from those that the proxy has rejected."""
        if type_url in self._rejected:
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

    def take_answered(self) -> list[Answered]:
        """Return, and remove, the events to which the proxy has completely responded."""
        answered: list[Answered] = []
        if not self._batches:
            return answered
        for batch in [b for b in self._batches if b.last != _OPEN and not self._is_in_flight(b)]:
            self._batches.remove(batch)
            if batch.refusals:
                self._refuse(batch)
            has_sent = batch.last >= batch.first
            state: State = "nacked" if batch.refusals else "acknowledged" if has_sent else "unchanged"
            answered.append(Answered(tuple(batch.events), state))
        return answered

    def _is_in_flight(self, batch: _Batch) -> bool:
        """Return whether a response that the batch caused has no answer."""
        type_url, number = batch.awaited
        if (sent := self._sent.get(type_url)) and sent[0].number <= number:  # proxies respond in order
            return True
        first, last = batch.first, batch.last
        for type_url, sent in self._sent.items():
            if sent and sent[0].lowest <= last:
                for response in sent:
                    if response.is_within(first, last):
                        batch.awaited = type_url, response.number
                        return True
        return False

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
        self._next, self.event = None, 0
        return events

    # -- state ---------------------------------------------------------------------------------------------------------

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
        return any(batch.last == _OPEN and batch.includes(event) for batch in self._batches)

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
