"""An ADS stream: its proxy, its session, and the feeds that it reads."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from pilot.derive import UNSET, Node
from pilot.envoy.plans.object_groups import object_groups
from pilot.envoy.plans.resource_group import Group, ProxyPlan
from pilot.lib.logging.log import fields, scope
from pilot.lib.xds_types import find_type
from pilot.mesh.model.proxy import Proxy
from pilot.xds.push.deliveries import Deliveries
from pilot.xds.push.feed import Feed, Feeds
from pilot.xds.session.session import Response, Session, do_nothing
from pilot.xds.session.snapshot import TypeState
from pilot.xds.session.subscription import Subscription

_log = scope("ads")
MAX_ANSWER_NONCES = 16
"""Number of recent answers to debug requests whose acknowledgements are recognised."""


def event_fields(connection: Connection) -> dict[str, object] | None:
    """Return the log fields of a connection's pending event, or None if there is none."""
    events = connection.deliveries.processed
    return fields(event=events[-1]) if events else None


class QueuedMessage(NamedTuple):
    """A message that waits to be written, and a future that completes when the message has been written."""

    data: bytes
    written: asyncio.Future[None]


class Connection:
    """A stream that is registered for pushes.

    proxy_key: Key of the proxy's row in `Mesh.proxies`.
    dirty_since: Monotonic time of the first change that has not been processed. If it is not None, `changed` is set.
    busy: Whether changes are being processed and written.
    finished: Whether nothing more may be written.
    end: Ends the stream after the current write.
    abort: Ends the stream immediately.
    messages: Messages to write before anything else.
    answer_nonces: Nonces of recent answers to debug requests.
    deliveries: Changes that affect the proxy and to which it has not completely responded.
    activity: Number of messages sent and received.
    active_at: Monotonic time of the last message that was sent or received.
    last_event: The last event before the stream.

    The connection is in `behind` while it has changes to process.
    """

    def __init__(
        self,
        number: int,
        proxy_key: str,
        proxy: Proxy,
        address: str,
        connected_at: float,
        session: Session,
        behind: dict[Connection, None],
    ) -> None:
        self.id = f"{proxy.id}-{number}"
        self.proxy_key, self.proxy, self.address = proxy_key, proxy, address
        self.connected_at, self.session = connected_at, session
        self.changed = asyncio.Event()
        self.dirty_since: float | None = None
        self.busy = self.finished = False
        self.activity = 0
        self.active_at = time.monotonic()
        self.last_event = 0
        self.reasons: Mapping[str, int] = {}
        self.deliveries = Deliveries()
        self.messages: deque[QueuedMessage] = deque()
        self.answer_nonces: deque[str] = deque(maxlen=MAX_ANSWER_NONCES)
        self.end: Callable[[], None] = do_nothing
        self.abort: Callable[[], None] = do_nothing
        self._behind = behind
        self._revisions: dict[str, tuple[int, int]] = {}
        self._plan = ProxyPlan({})
        self._feeds: dict[str, Feed[Connection]] = {}

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self.session.subscriptions

    @property
    def peer(self) -> str:
        """Return the verified identity of the peer, or the host of its address if it has no identity."""
        return self.proxy.identity or self.address.rpartition(":")[0]

    @property
    def has_acknowledged(self) -> bool:
        """Return whether the proxy has acknowledged any response, which shows that it reads responses."""
        return any(subscription.nonce_acked for subscription in self.subscriptions.values())

    def abort_slow_write(self) -> None:
        """Abort the stream because its proxy does not read responses."""
        _log.warning("ADS: %s does not read responses; closing its stream", self.id)
        self.abort()

    def mark_active(self) -> None:
        """Record that a message was sent or received."""
        self.activity += 1
        self.active_at = time.monotonic()

    def mark_sent(self, response: Response, revision: int, nonce: str) -> None:
        """Record that a response is about to be sent. `revision` is the database revision that it reflects.

        The session must not know of the response yet.
        """
        self.mark_active()
        session, type_url = self.session, response.type_url
        self.deliveries.on_sent(type_url, nonce, response.names, session.is_whole(response), session.owes(type_url))
        self._revisions[type_url] = revision, self.acked_revision(type_url)

    def mark_acked(self, type_url: str) -> None:
        """Record that the proxy has acknowledged the last response of a type."""
        if (revisions := self._revisions.get(type_url)) is not None:
            self._revisions[type_url] = revisions[0], revisions[0]

    def acked_revision(self, type_url: str) -> int:
        """Return the revision of the last acknowledged response of a type, or -1 if none was acknowledged."""
        return self._revisions.get(type_url, (-1, -1))[1]

    @property
    def is_idle(self) -> bool:
        """Return whether the proxy is up to date."""
        return self.dirty_since is None and not self.busy

    def mark_dirty(self, now: float, reasons: Mapping[str, int]) -> None:
        """Record that something may have changed for this proxy. `reasons` maps each kind of change to the number of
        changes."""
        if self.dirty_since is None:
            self.dirty_since, self.reasons = now, reasons
            self._behind[self] = None
            self.changed.set()
        else:
            merged = dict(self.reasons)
            for reason, count in reasons.items():
                merged[reason] = merged.get(reason, 0) + count
            self.reasons = merged

    async def send(self, data: bytes, reasons: Mapping[str, int]) -> None:
        """Write a message before anything else, and return when it has been written."""
        message = QueuedMessage(data, asyncio.get_running_loop().create_future())
        self.messages.append(message)
        self.mark_dirty(time.monotonic(), reasons)
        await message.written

    def finish(self) -> None:
        """Write nothing after the current write."""
        self.finished = True
        self.changed.set()

    def begin(self) -> float:
        """Start processing changes. Return the monotonic time of the first change."""
        assert self.dirty_since is not None
        since, self.dirty_since, self.busy = self.dirty_since, None, True
        self.deliveries.begin()
        self.changed.clear()
        return since

    def end_processing(self) -> None:
        """Record that everything that the proxy lacks has been written, except endpoints that are held back."""
        self.busy = False
        if self.is_idle:
            self._behind.pop(self, None)
        self.deliveries.end(is_complete=not self.session.holds_endpoints)

    @property
    def has_nacked(self) -> bool:
        """Return whether the proxy has rejected the last response of at least one type."""
        return any(subscription.last_error for subscription in self.subscriptions.values())

    @property
    def has_started(self) -> bool:
        """Return whether the proxy has responded to its first configuration."""
        return self.deliveries.check_start(time.monotonic() - self.active_at if self.is_idle else 0.0)

    def delivery(self, event: int) -> Literal["waiting", "sent", "done"]:
        """Return whether an event waits to be sent, or for the proxy's response. If it is 0, any event counts."""
        deliveries = self.deliveries
        if not event:
            return "done" if deliveries.is_settled else "waiting"
        return "waiting" if deliveries.waits_for(event) else "sent" if deliveries.is_unanswered(event) else "done"

    def refusal(self, event: int) -> str:
        """Return the reason for which the proxy has refused an event, or "" if it has not refused it.

        A refused first configuration includes the events before the stream.
        """
        if event <= self.last_event and self.has_nacked:
            return self.deliveries.start_refusal
        return self.deliveries.refusal(event)

    def next_response(self, plan: Node, feeds: Feeds[Connection]) -> Response | None:
        """Return the first response that the proxy lacks according to its plan, or None if it is up to date."""
        if plan.value is not self._plan and plan.value is not UNSET:
            self._plan = plan.value
            self._reopen_feeds(feeds)
        response = self.session.next_response(lambda type_url: self._state(type_url, feeds), feeds.pause_if_due)
        if response is None:  # types that are no longer subscribed to have been answered by now
            unused = [url for url in self._feeds if (s := self.subscriptions.get(url)) is None or s.is_empty]
            for type_url in unused:
                self._open(type_url, feeds)
        return response

    def is_shared(self, type_url: str) -> bool:
        """Return whether other connections receive the same resources of a type."""
        feed = self._feeds.get(type_url)
        return feed is not None and len(feed.readers) > 1

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of all resource groups that the connection reads."""
        return tuple(group.node for feed in self._feeds.values() for group in feed.watched_groups)

    def feeds(self) -> Iterator[tuple[str, Feed[Connection]]]:
        """Yield each feed with its type URL."""
        yield from self._feeds.items()

    def close(self, feeds: Feeds[Connection]) -> None:
        """Close all feeds. Later changes are not processed any more."""
        self._behind.pop(self, None)
        self._behind = {}
        for feed in self._feeds.values():
            feeds.close(feed, self)
        self._feeds.clear()

    def close_unused(self, type_url: str, feeds: Feeds[Connection]) -> None:
        """Close the feed of a type if a request has made it unnecessary."""
        if type_url in self._feeds and (self._plan.depends_on_names(type_url) or self._groups_of(type_url) is None):
            self._open(type_url, feeds)

    def _reopen_feeds(self, feeds: Feeds[Connection]) -> None:
        """Keep the feeds that are in the new plan, and replace the others."""
        for type_url in list(self._feeds):
            self._open(type_url, feeds)

    def _state(self, type_url: str, feeds: Feeds[Connection]) -> TypeState | None:
        feed = self._feeds.get(type_url)
        if feed is None or self._plan.depends_on_names(type_url):
            feed = self._open(type_url, feeds)
            if feed is None:
                return None
        if not feed.is_stale:
            feeds.hits += 1
            return feed.last_state
        state = feed.state
        feeds.misses += 1
        return state

    def _open(self, type_url: str, feeds: Feeds[Connection]) -> Feed[Connection] | None:
        """Open the feed of a type for the current plan and requested names, close the previous one, and return the new
        one.

        Return None if the plan has no resources of this type.
        """
        old, groups = self._feeds.get(type_url), self._groups_of(type_url)
        if old is not None and old.groups == groups:
            return old
        new = feeds.open(type_url, groups, self) if groups is not None else None
        if new is not None:
            self._feeds[type_url] = new
        else:
            self._feeds.pop(type_url, None)
        if old is not None:  # close it last, so that groups that both have are not derived again
            feeds.close(old, self)
        return new

    def _groups_of(self, type_url: str) -> tuple[Group, ...] | None:
        subscription = self.subscriptions.get(type_url)
        if subscription is None or subscription.is_empty:
            return None
        groups = self._plan.groups_of(type_url, subscription.requested.all, subscription.wildcard)
        if groups is None:
            groups = object_groups(type_url)
        return None if groups and find_type(type_url).needs_identity and not self.proxy.identity else groups
