"""Proxies are registered here while they are connected, and a change wakes those that it concerns."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pilot.derive import Derived, Node, Table
from pilot.envoy.plans.plan import Plan
from pilot.envoy.resource import Resource
from pilot.lib.clock import rfc3339
from pilot.lib.log import fields, scope
from pilot.lib.metrics import Metrics
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.connection import Connection
from pilot.xds.feed import Feed, Feeds
from pilot.xds.lifecycle import Lifecycle, NoLifecycle
from pilot.xds.progress import EventOutcome, EventProgress
from pilot.xds.resource_names import NameSets
from pilot.xds.session import Response, Session

COLLECTED = 500
"""Values that are given up in one step of a sweep: some milliseconds of it."""
LINGER = 30.0
_log = scope("ads")


def log_outcome(outcome: EventOutcome) -> None:
    event, proxies, acknowledged, refused, gone, seconds = outcome
    text = "Push event[%d] of %d proxies: acknowledged:%d refused:%d gone:%d after %.3fs"
    _log.info(text, event, proxies, acknowledged, refused, gone, seconds, extra=fields(event=event))


class RefusalLog(Protocol):
    """What is told of refusals."""

    def refused(self, connection: Connection, type_url: str, message: str) -> None: ...
    def taken(self, connection: Connection, type_url: str) -> None: ...


class NoRefusals:
    """Forgets what it is told."""

    def refused(self, connection: Connection, type_url: str, message: str) -> None:
        """Does nothing."""

    def taken(self, connection: Connection, type_url: str) -> None:
        """Does nothing."""


def _ignore(reached: Iterable[Node]) -> None:
    """Does nothing with what proxies' rows reached: nobody but the connections follows it."""


class Discovery:
    """The connected proxies, and what changes for them. `plan` says what a proxy, by the key of its row, is to be sent; `on_commit` is told of the
    watched nodes that the rows of proxies, as they come and go, reached.

    A row belongs to streams that say the same and are verified alike: one that has another's node id, but other facts or another identity,
    gets a row of its own.
    A proxy that goes keeps its row and its derived values for `linger` seconds: most come back at once. `on_asked` has, by type URL, what is
    to be told of every request for the type, `lifecycle` what is told of every stream, `refusals` of what proxies refuse.
    """

    def __init__(
        self,
        db: Mesh,
        metrics: Metrics,
        plan: Derived[[str], Plan],
        linger: float = LINGER,
        now: Callable[[], float] = time.time,
        on_commit: Callable[[Iterable[Node]], None] = _ignore,
    ) -> None:
        self.db, self.metrics, self.name_sets = db, metrics, NameSets()
        self._plan, self._linger, self._now, self._on_commit = plan, linger, now, on_commit
        self._feeds: Feeds[Connection] = Feeds(db)
        self._connections: dict[str, Connection] = {}
        self._known: dict[str, Proxy] = {}
        self._plans: dict[str, Node] = {}
        self._by_plan: dict[Node, dict[Connection, None]] = {}
        self._gone: dict[str, float] = {}
        self.lifecycle: Lifecycle = NoLifecycle()
        self.refusals: RefusalLog = NoRefusals()
        self.counts_cache = False
        self.progress = EventProgress(self._finished)
        self.on_outcome: Callable[[EventOutcome], None] = log_outcome
        self.on_asked: dict[str, Callable[[Connection], None]] = {}
        self._held: deque[tuple[float, tuple[Node, ...]]] = deque()
        self._numbers = itertools.count(1)
        self._versions = itertools.count(1)
        self.version = self._next_version()

    # -- changes -------------------------------------------------------------------------------------------------------

    def wake(self, reached: Iterable[Node], reasons: Mapping[str, int], event: int = 0) -> int:
        """Wakes the connections that the nodes, which a commit reported, concern; returns how many. `reasons` has the kinds of changes, and how
        often each came; `event` is the number by which the commit is followed to proxies, 0 for one that is not."""
        concerned: dict[Connection, None] = {}
        reached = tuple(reached)
        for node in reached:
            concerned |= self._by_plan.get(node, {})
        for feed in self._feeds.reached(reached):
            concerned |= feed.readers
        if concerned:
            self.version = self._next_version()
            if event:
                for connection in concerned:
                    connection.events = (*connection.events, event)
                self.progress.begin(event, len(concerned))
            self._mark(concerned, reasons)
        return len(concerned)

    def answered(self, connection: Connection) -> None:
        """Notes which events a proxy has answered all of by now."""
        if events := connection.take_answered():
            self.progress.acknowledged(events, connection.refuses)

    def _finished(self, outcome: EventOutcome) -> None:
        self.on_outcome(outcome)

    def push_all(self) -> int:
        """Sends everything to everybody again; returns the number of proxies."""
        self.version = self._next_version()
        for connection in self._connections.values():
            connection.session.owe_everything()
        self._mark(self._connections.values(), {"debug": 1})
        return len(self._connections)

    def _mark(self, connections: Iterable[Connection], reasons: Mapping[str, int]) -> None:
        now = time.monotonic()
        for connection in connections:
            connection.mark(now, reasons)

    def _next_version(self) -> str:
        return f"{rfc3339(self._now())}/{next(self._versions)}"

    # -- connections ---------------------------------------------------------------------------------------------------

    def connect(self, node_id: str, proxy: Proxy, address: str, session: Session) -> Connection:
        """Registers a stream for pushes and returns its connection; the proxy becomes a row."""
        key = self._key_of(node_id, proxy)
        connection = Connection(next(self._numbers), key, proxy, address, self._now(), session)
        self._connections[connection.id] = connection
        self._gone.pop(key, None)
        if key not in self._known:
            self._known[key] = proxy
            self._put([(key, proxy)])
            self._plans[key] = self.db.watch(self._plan, key)
        self._by_plan.setdefault(self._plans[key], {})[connection] = None
        self.metrics.connected(proxy.version)
        return connection

    def _key_of(self, node_id: str, proxy: Proxy) -> str:
        """Returns the key of the row that the stream shares with others that are the same, or of a free one. A node id has four parts, other keys
        have five."""
        for key in itertools.chain((node_id,), (f"{node_id}~{number}" for number in itertools.count(2))):
            known = self._known.get(key)
            if known is None or known == proxy:
                return key
        raise AssertionError("numbers do not end")

    def closed(self, connection: Connection) -> None:
        """Undoes `connect` when the stream has ended."""
        if self._connections.pop(connection.id, None) is None:
            return
        now = time.monotonic()
        self.progress.gone(connection.take_unanswered())
        self._held.append((now, self._hold(connection)))
        connection.close(self._feeds)
        followers = self._by_plan[self._plans[connection.proxy_key]]
        followers.pop(connection, None)
        if not followers:
            self._gone[connection.proxy_key] = now
        self.metrics.disconnected(connection.proxy.version)

    def _hold(self, connection: Connection) -> tuple[Node, ...]:
        """Keeps what the connection followed for when its proxy comes back; returns the nodes."""
        nodes = connection.nodes()
        for node in nodes:
            self.db.hold(node)
        return nodes

    def sweep(self) -> int:
        """Forgets the proxies that have been gone for long, and what was derived for nobody else; returns the number of proxies."""
        forgotten = self._forget_gone(time.monotonic() - self._linger)
        self.db.collect()
        return forgotten

    def sweep_in_steps(self) -> Iterator[None]:
        """Does the same; others may have their turns between two steps."""
        self._forget_gone(time.monotonic() - self._linger)
        while self.db.collect_some(COLLECTED):
            yield

    def _forget_gone(self, limit: float) -> int:
        """Forgets the proxies that went before `limit`, monotonic; returns their number. What was derived for them is there until it is collected."""
        gone = [key for key, since in self._gone.items() if since <= limit]
        for key in gone:
            del self._gone[key], self._known[key]
            node = self._plans.pop(key)
            del self._by_plan[node]
            self.db.unwatch(node)
        if gone:
            self._put((key, None) for key in gone)
        while self._held and self._held[0][0] <= limit:
            for node in self._held.popleft()[1]:
                self.db.unwatch(node)
        return len(gone)

    def _put(self, rows: Iterable[tuple[str, Proxy | None]]) -> None:
        self.commit([(self.db.proxies, key, proxy) for key, proxy in rows], {"proxy": 1})

    def commit(self, rows: Sequence[tuple[Table[Any, Any], Any, Any]], reasons: Mapping[str, int]) -> None:
        """Puts rows that follow from streams into tables, by table and key (None takes one away), and wakes the connections that they concern."""
        reached = self.db.commit(rows)
        self._on_commit(reached)
        self.wake(reached, reasons)

    def asked(self, connection: Connection, type_url: str) -> None:
        """Tells whom it concerns that a stream sent a request for a type."""
        if (told := self.on_asked.get(type_url)) is not None:
            told(connection)

    def next_response(self, connection: Connection) -> Response | None:
        """Returns what is to be sent next on a connection, from what is true now; None if there is nothing to send."""
        node = self._plans[connection.proxy_key]
        if node.stale:
            self.db.refresh(node)
        return connection.next_response(node, self._feeds)

    def let_go(self, connection: Connection, type_url: str) -> None:
        """Gives up what a request of this type, which leaves nothing to answer, no longer asks for."""
        connection.let_go(type_url, self._feeds)

    # -- for the debug pages -------------------------------------------------------------------------------------------

    def connections(self) -> Sequence[Connection]:
        return tuple(self._connections.values())

    def kept(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        """Returns the serialized resources that are kept for the connected proxies: by type URL groups of them, by name."""
        feeds: dict[str, dict[Feed[Connection], None]] = {}
        for connection in self._connections.values():
            for type_url, feed in connection.kept():
                feeds.setdefault(type_url, {})[feed] = None
        groups = {
            type_url: dict.fromkeys(s for feed in found for s in feed.snapshots) for type_url, found in feeds.items()
        }
        return {type_url: [snapshot.by_name for snapshot in snapshots] for type_url, snapshots in groups.items()}

    def forget(self) -> None:
        """Gives up what is kept for proxies that are gone."""
        self._forget_gone(time.monotonic())
        self.db.collect()
        if self.counts_cache:
            self.metrics.cache_evicted("clear")

    def count_kept(self) -> int:
        """Returns how many serialized resources are kept."""
        return sum(len(group) for groups in self.kept().values() for group in groups)

    def count_waiting(self) -> int:
        """Returns how many connections wait for what has changed for them."""
        return sum(connection.dirty_since is not None for connection in self._connections.values())

    @property
    def reads(self) -> tuple[int, int]:
        """Returns how often a connection found what it is to have made already, and how often it had to be made."""
        return self._feeds.hits, self._feeds.misses

    def disconnect(self, connection_id: str) -> None:
        """Ends one stream; its proxy will come back."""
        connection = self._connections.get(connection_id)
        if connection is not None:
            connection.end()
