"""One ADS stream: who it is, its session, and the feeds that it follows."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pilot.derive import UNSET, Node
from pilot.model.proxy import Proxy
from pilot.serve.feed import Feed, Feeds
from pilot.serve.session import Answer, Session
from pilot.serve.snapshot import View
from pilot.serve.subscription import Subscription
from pilot.translate.profile.plan import Plan


class Connection:
    """A stream that is registered for pushes. `dirty_since` is when something changed for it first, monotonic, None while it is up to
    date; `changed` is set then. `end` makes the stream end."""

    def __init__(self, number: int, node_id: str, proxy: Proxy, address: str, connected_at: float, session: Session) -> None:
        self.id = f"{proxy.id}-{number}"
        self.node_id, self.proxy, self.address, self.connected_at, self.session = node_id, proxy, address, connected_at, session
        self.changed = asyncio.Event()
        self.dirty_since: float | None = None
        self.end: Callable[[], None] | None = None
        self._feeds: dict[str, Feed[Connection]] = {}

    @property
    def watches(self) -> Mapping[str, Subscription]:
        return self.session.subscriptions

    def mark(self, now: float) -> None:
        """Something may have changed for this proxy."""
        if self.dirty_since is None:
            self.dirty_since = now
            self.changed.set()

    def next_answer(self, plan: Node, feeds: Feeds[Connection]) -> Answer | None:
        """The first response that the proxy lacks by its plan."""
        groups: Plan | None = None if plan.value is UNSET else plan.value
        return self.session.next_answer(lambda type_url: self._view(type_url, groups, feeds))

    def close(self, feeds: Feeds[Connection]) -> None:
        """Follow nothing any more."""
        for feed in self._feeds.values():
            feeds.close(feed, self)
        self._feeds.clear()

    def _view(self, type_url: str, plan: Plan | None, feeds: Feeds[Connection]) -> View | None:
        groups = plan.groups.get(type_url) if plan is not None else None
        if groups is None:
            return None
        feed = self._feeds.get(type_url)
        if feed is None or (feed.groups is not groups and feed.groups != groups):
            old, feed = feed, feeds.open(groups, self)
            self._feeds[type_url] = feed
            if old is not None:
                feeds.close(old, self)
        return feed.view
