"""A connection is one ADS stream: who it is, its session, and the feeds that it follows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from pilot.derive import UNSET, Node
from pilot.envoy.plans.objects import object_groups
from pilot.envoy.plans.plan import Group, Plan
from pilot.lib.log import fields, scope
from pilot.lib.xds_types import find_type
from pilot.mesh.model.proxy import Proxy
from pilot.xds.feed import Feed, Feeds
from pilot.xds.session import Response, Session
from pilot.xds.snapshot import TypeState
from pilot.xds.subscription import Subscription

_log = scope("ads")
ANSWERS = 16
"""Answers to questions whose acknowledgement is known as one."""


def nothing() -> None:
    """Does nothing: a stream that is not served needs no end."""


def of_events(connection: Connection) -> dict[str, object] | None:
    """Returns the events that a line about a connection follows from, as its fields; None where there is none."""
    return fields(event=connection.under_way[-1]) if connection.under_way else None


class Connection:
    """A stream that is registered for pushes.

    `proxy_key` is the key of its row in `Mesh.proxies`. `dirty_since` is when something changed first that has not been looked at yet,
    monotonic, or None; `changed` is set then. It is `busy` while it is looked at and written. Once `finished`, nothing more is written. `end`
    makes the stream end when what is being written is out, `abort` at once. `said` are messages that are to be written before anything else.
    `answered` are the nonces of the last answers to questions.
    `events` are the numbers of those that concern it and have not been looked at yet. `activity` counts what was sent and received.
    """

    def __init__(
        self, number: int, proxy_key: str, proxy: Proxy, address: str, connected_at: float, session: Session
    ) -> None:
        self.id = f"{proxy.id}-{number}"
        self.proxy_key, self.proxy, self.address, self.connected_at, self.session = (
            proxy_key,
            proxy,
            address,
            connected_at,
            session,
        )
        self.changed = asyncio.Event()
        self.dirty_since: float | None = None
        self.busy = self.finished = False
        self.activity = 0
        self.reasons: Mapping[str, int] = {}
        self.events: tuple[int, ...] = ()
        self._under_way: tuple[int, ...] = ()
        self.said: deque[bytes] = deque()
        self.answered: deque[str] = deque(maxlen=ANSWERS)
        self.end: Callable[[], None] = nothing
        self.abort: Callable[[], None] = nothing
        self._revisions: dict[str, tuple[int, int]] = {}
        self._plan = Plan({})
        self._feeds: dict[str, Feed[Connection]] = {}

    @property
    def watches(self) -> Mapping[str, Subscription]:
        return self.session.subscriptions

    @property
    def peer(self) -> str:
        """Returns who is behind the stream: its verified identity, else the host of its address."""
        return self.proxy.identity or self.address.rpartition(":")[0]

    @property
    def is_known(self) -> bool:
        """Returns whether the proxy has acknowledged something, so that it is one that reads."""
        return any(subscription.nonce_acked for subscription in self.watches.values())

    def give_up(self) -> None:
        """Ends the stream, whose proxy does not take what is written."""
        _log.warning("ADS: %s takes nothing: its stream is ended", self.id)
        self.abort()

    def wrote(self, type_url: str, revision: int) -> None:
        """Notes that a response of a type is on its way, and the revision of the database that it is of."""
        self.activity += 1
        self._revisions[type_url] = revision, self.taken_revision(type_url)

    def took(self, type_url: str) -> None:
        """Notes that the proxy has taken the last response of a type."""
        if (known := self._revisions.get(type_url)) is not None:
            self._revisions[type_url] = known[0], known[0]

    def taken_revision(self, type_url: str) -> int:
        """Returns the revision of the last response of a type that the proxy has taken, -1 before the first."""
        return self._revisions.get(type_url, (-1, -1))[1]

    @property
    def is_idle(self) -> bool:
        """Returns whether the proxy has everything that there is for it."""
        return self.dirty_since is None and not self.busy

    def mark(self, now: float, reasons: Mapping[str, int]) -> None:
        """Notes that something may have changed for this proxy. `reasons` has the kinds of changes, and how often each came."""
        if self.dirty_since is None:
            self.dirty_since, self.reasons = now, reasons
            self.changed.set()
        else:
            merged = dict(self.reasons)
            for reason, count in reasons.items():
                merged[reason] = merged.get(reason, 0) + count
            self.reasons = merged

    def finish(self) -> None:
        """Lets nothing be written after what is being written now."""
        self.finished = True
        self.changed.set()

    def begin(self) -> float:
        """Starts to look at what changed; returns when the first of it did, monotonic."""
        assert self.dirty_since is not None
        since, self.dirty_since, self.busy = self.dirty_since, None, True
        if self.events:
            self.events, self._under_way = (), self._under_way + self.events
        self.changed.clear()
        return since

    def take_answered(self) -> tuple[int, ...]:
        """Returns the events all of whose consequences the proxy has answered by now, each once; () while something is on its way."""
        if (
            not self._under_way
            or self.busy
            or any(watch.nonce_sent != watch.nonce_acked and not watch.last_error for watch in self.watches.values())
        ):
            return ()
        found, self._under_way = self._under_way, ()
        return found

    @property
    def under_way(self) -> tuple[int, ...]:
        """Returns the events of which something has been looked at, and not all is answered."""
        return self._under_way

    @property
    def refuses(self) -> bool:
        """Returns whether the proxy has refused the last response of some type."""
        return any(watch.last_error for watch in self.watches.values())

    def take_unanswered(self) -> tuple[int, ...]:
        """Returns the events that the proxy has not answered, for when it goes."""
        found, self.events, self._under_way = self._under_way + self.events, (), ()
        return found

    def next_response(self, plan: Node, feeds: Feeds[Connection]) -> Response | None:
        """Returns the first response that the proxy lacks by its plan, None if it has everything."""
        if plan.value is not self._plan and plan.value is not UNSET:
            self._plan = plan.value
            self._follow(feeds)
        answer = self.session.next_response(lambda type_url: self._state(type_url, feeds))
        if answer is None:  # by now all is answered that was owed to a type which is no longer asked for
            for type_url in [url for url in self._feeds if (watch := self.watches.get(url)) is None or watch.is_empty]:
                self._open(type_url, feeds)
        return answer

    def shares(self, type_url: str) -> bool:
        """Returns whether other connections get the same of a type."""
        feed = self._feeds.get(type_url)
        return feed is not None and len(feed.readers) > 1

    def nodes(self) -> tuple[Node, ...]:
        """Returns the derived groups that it follows."""
        return tuple(watched.node for feed in self._feeds.values() for watched in feed.watched)

    def kept(self) -> Iterator[tuple[str, Feed[Connection]]]:
        """Yields what it follows by type URL."""
        yield from self._feeds.items()

    def close(self, feeds: Feeds[Connection]) -> None:
        """Gives up all feeds."""
        for feed in self._feeds.values():
            feeds.close(feed, self)
        self._feeds.clear()

    def let_go(self, type_url: str, feeds: Feeds[Connection]) -> None:
        """Gives up what a request of this type does not ask for any more."""
        if type_url in self._feeds and (self._plan.varies(type_url) or self._groups_of(type_url) is None):
            self._open(type_url, feeds)

    def _follow(self, feeds: Feeds[Connection]) -> None:
        """Keeps the feeds that are in the new plan, and takes others in the place of those that are not."""
        for type_url in list(self._feeds):
            self._open(type_url, feeds)

    def _state(self, type_url: str, feeds: Feeds[Connection]) -> TypeState | None:
        feed = self._feeds.get(type_url)
        if feed is None or self._plan.varies(type_url):
            feed = self._open(type_url, feeds)
            if feed is None:
                return None
        if not feed.stale:
            feeds.hits += 1
            return feed.seen
        feeds.misses += 1
        return feed.state

    def _open(self, type_url: str, feeds: Feeds[Connection]) -> Feed[Connection] | None:
        """Returns the feed of what the plan has of a type for the names that are asked for now; it takes the place of the one before. None if the
        plan has nothing of it."""
        old, groups = self._feeds.get(type_url), self._groups_of(type_url)
        if old is not None and old.groups == groups:
            return old
        new = feeds.open(type_url, groups, self) if groups is not None else None
        if new is not None:
            self._feeds[type_url] = new
        else:
            self._feeds.pop(type_url, None)
        if old is not None:  # not before the other one is open: what both have is not to be derived again
            feeds.close(old, self)
        return new

    def _groups_of(self, type_url: str) -> tuple[Group, ...] | None:
        subscription = self.watches.get(type_url)
        if subscription is None or subscription.is_empty:
            return None
        groups = self._plan.groups_of(type_url, subscription.wanted.all, subscription.wildcard)
        if groups is None:
            groups = object_groups(type_url)
        return None if groups and find_type(type_url).needs_identity and not self.proxy.identity else groups
