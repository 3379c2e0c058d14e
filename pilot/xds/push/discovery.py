"""Registers proxies while they are connected, and wakes the proxies that a change affects."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pilot.derive import Derived, Node, Table
from pilot.envoy.plans.resource_group import ProxyPlan
from pilot.envoy.resource import Resource
from pilot.lib.clock import rfc3339
from pilot.lib.logging.log import fields, scope
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.push.connection import Connection
from pilot.xds.push.event_progress import EventOutcome, EventProgress
from pilot.xds.push.feed import Feed, Feeds
from pilot.xds.session.name_sets import NameSets
from pilot.xds.session.session import Response, Session

COLLECT_STEP = 2000
"""Number of values that one step of a sweep frees, which takes a few milliseconds."""
MANY_UNUSED = 5_000
"""Number of unused values and their inputs that are not left to the next sweep. Otherwise, a large object that changes
often, or an object in a mesh with many services, would take memory for each of its states between two sweeps."""
LINGER = 30.0
_log = scope("ads")


def log_outcome(outcome: EventOutcome) -> None:
    _log.info(
        "Push event[%d] to %d proxies: acknowledged:%d rejected:%d disconnected:%d unchanged:%d after %.3fs",
        outcome.event,
        outcome.proxies,
        outcome.acknowledged,
        outcome.nacked,
        outcome.disconnected,
        outcome.unchanged,
        outcome.seconds,
        extra=fields(event=outcome.event),
    )


class Discovery:
    """The connected proxies, and the changes that affect them.

    plan: Derives the plan of a proxy from the key of its row.
    linger: Seconds for which a disconnected proxy keeps its row and derived values. Most reconnect immediately.
    commit_listeners: Functions that are called with the nodes that a call of `commit` affects.
    on_outcome: Called with the outcome of each event.
    counts_cache: Whether cache evictions are counted.

    Streams share a row if their nodes and identities are equal. A stream that has the same node ID but differs
    otherwise has a separate row.
    """

    def __init__(
        self,
        db: Mesh,
        metrics: Metrics,
        plan: Derived[[str], ProxyPlan],
        linger: float = LINGER,
        now: Callable[[], float] = time.time,
        commit_listeners: Sequence[Callable[[Iterable[Node]], None]] = (),
        on_outcome: Callable[[EventOutcome], None] = log_outcome,
        counts_cache: bool = False,
    ) -> None:
        self.db, self.metrics, self.name_sets = db, metrics, NameSets()
        self._plan, self._linger, self._now, self._commit_listeners = plan, linger, now, commit_listeners
        self.counts_cache = counts_cache
        self._feeds: Feeds[Connection] = Feeds(db)
        self._connections: dict[str, Connection] = {}
        self._behind: dict[Connection, None] = {}
        self._proxies: dict[str, Proxy] = {}
        self._plans: dict[str, Node] = {}
        self._by_plan: dict[Node, dict[Connection, None]] = {}
        self._disconnected: dict[str, float] = {}
        self.progress = EventProgress(on_outcome, on_delivered=metrics.delivered)
        self._last_event = 0
        self._lingering: deque[tuple[float, tuple[Node, ...]]] = deque()
        self._numbers = itertools.count(1)
        self._versions = itertools.count(1)
        self.version = self._next_version()

    # -- changes -------------------------------------------------------------------------------------------------------

    def wake(self, nodes: Iterable[Node], reasons: Mapping[str, int], event: int = 0, age: float = 0.0) -> int:
        """Wake the connections that use nodes affected by a commit. Return the number of connections.

        `reasons` maps each kind of change to the number of changes. `event` is the number under which the commit is
        tracked, or 0 if it is not tracked. `age` is the number of seconds since the first of the changes.

        A tracked commit also counts for connections that are processing earlier changes. Their nodes may already have
        been stale, and a commit reports a stale node only once.
        """
        self._last_event = event or self._last_event
        affected: dict[Connection, None] = {}
        nodes = tuple(nodes)
        for node in nodes:
            affected |= self._by_plan.get(node, {})
        for feed in self._feeds.mark_stale(nodes):
            affected |= feed.readers
        behind = [connection for connection in self._behind if connection not in affected] if event else []
        if affected or behind:
            self.version = self._next_version()
            if event:
                for connection in (*affected, *behind):
                    connection.deliveries.add(event)
                self.progress.begin(event, len(affected) + len(behind), age)
            # Those that wait for their turn will process the event, too.
            self._mark_dirty((*affected, *(one for one in behind if one.dirty_since is None)), reasons)
        return len(affected) + len(behind)

    def count_response(self, connection: Connection) -> None:
        """Count the events to which a proxy has completely responded."""
        for events, state in connection.deliveries.take_answered():
            self.progress.count_response(events, state)

    def push_all(self) -> int:
        """Send all resources to all proxies again. Return the number of proxies."""
        self.version = self._next_version()
        for connection in self._connections.values():
            connection.session.owe_everything()
        self._mark_dirty(self._connections.values(), {"debug": 1})
        return len(self._connections)

    def _mark_dirty(self, connections: Iterable[Connection], reasons: Mapping[str, int]) -> None:
        now = time.monotonic()
        for connection in connections:
            connection.mark_dirty(now, reasons)

    def _next_version(self) -> str:
        return f"{rfc3339(self._now())}/{next(self._versions)}"

    # -- connections ---------------------------------------------------------------------------------------------------

    def connect(self, node_id: str, proxy: Proxy, address: str, session: Session) -> Connection:
        """Register a stream for pushes, add the proxy's row, and return the connection."""
        key = self._key_of(node_id, proxy)
        connection = Connection(next(self._numbers), key, proxy, address, self._now(), session, self._behind)
        connection.last_event = self._last_event
        self._connections[connection.id] = connection
        self._disconnected.pop(key, None)
        if key not in self._proxies:
            self._proxies[key] = proxy
            self._put([(key, proxy)])
            self._plans[key] = self.db.watch(self._plan, key)
        self._by_plan.setdefault(self._plans[key], {})[connection] = None
        self.metrics.connected(proxy.version)
        return connection

    def _key_of(self, node_id: str, proxy: Proxy) -> str:
        """Return the key of the row that has an equal proxy, or else an unused key.

        The first stream of a node has the node ID as its key, which has four parts. Other keys have five.
        """
        for key in itertools.chain((node_id,), (f"{node_id}~{number}" for number in itertools.count(2))):
            existing = self._proxies.get(key)
            if existing is None or existing == proxy:
                return key
        raise AssertionError("unreachable")

    def remove(self, connection: Connection) -> None:
        """Remove the connection of a stream that has ended."""
        if self._connections.pop(connection.id, None) is None:
            return
        now = time.monotonic()
        self.progress.count_response(connection.deliveries.take_unanswered(), "disconnected")
        self._lingering.append((now, self._hold(connection)))
        connection.close(self._feeds)
        streams = self._by_plan[self._plans[connection.proxy_key]]
        streams.pop(connection, None)
        if not streams:
            self._disconnected[connection.proxy_key] = now
        self.metrics.disconnected(connection.proxy.version)

    def _hold(self, connection: Connection) -> tuple[Node, ...]:
        """Hold the nodes of a connection in case its proxy reconnects. Return these nodes."""
        nodes = connection.nodes()
        for node in nodes:
            self.db.hold(node)
        return nodes

    def sweep(self) -> int:
        """Remove proxies that disconnected long ago, and the values derived only for them. Return the number of removed
        proxies."""
        count = self._remove_disconnected(time.monotonic() - self._linger)
        self.db.collect()
        return count

    def sweep_in_steps(self) -> Iterator[None]:
        """Sweep in steps. Between two steps, the event loop handles other events."""
        self._remove_disconnected(time.monotonic() - self._linger)
        yield from self._collect_in_steps()

    def free_many_in_steps(self) -> Iterator[None]:
        """Free unused values in steps, without waiting for the next sweep, if there are many."""
        if self.db.has_unused(MANY_UNUSED):
            yield from self._collect_in_steps()

    def _collect_in_steps(self) -> Iterator[None]:
        while self.db.collect_some(COLLECT_STEP):
            yield

    def _remove_disconnected(self, limit: float) -> int:
        """Remove proxies that disconnected before the monotonic time `limit`. Return the number of removed proxies.

        The values derived for them remain until they are collected.
        """
        keys = [key for key, since in self._disconnected.items() if since <= limit]
        for key in keys:
            del self._disconnected[key], self._proxies[key]
            node = self._plans.pop(key)
            del self._by_plan[node]
            self.db.unwatch(node)
        if keys:
            self._put((key, None) for key in keys)
        while self._lingering and self._lingering[0][0] <= limit:
            for node in self._lingering.popleft()[1]:
                self.db.unwatch(node)
        return len(keys)

    def _put(self, rows: Iterable[tuple[str, Proxy | None]]) -> None:
        self.commit([(self.db.proxies, key, proxy) for key, proxy in rows], {"proxy": 1})

    def commit(self, rows: Sequence[tuple[Table[Any, Any], Any, Any]], reasons: Mapping[str, int]) -> None:
        """Commit rows that streams have produced, and wake the affected connections. A row is deleted if its new value
        is None."""
        nodes = self.db.commit(rows)
        for listener in self._commit_listeners:
            listener(nodes)
        self.wake(nodes, reasons)

    def next_response(self, connection: Connection) -> Response | None:
        """Return the next response for a connection from the current state, or None if the proxy is up to date."""
        node = self._plans[connection.proxy_key]
        if node.stale:
            self.db.refresh(node)
        return connection.next_response(node, self._feeds)

    def close_unused(self, connection: Connection, type_url: str) -> None:
        """Close the feed of a type if a request that needs no response has made the feed unnecessary."""
        connection.close_unused(type_url, self._feeds)

    # -- for the debug pages -------------------------------------------------------------------------------------------

    def connections(self) -> Sequence[Connection]:
        return tuple(self._connections.values())

    def readers(self, nodes: Iterable[Node]) -> Iterator[tuple[str, Collection[Connection]]]:
        """Yield a type URL and the connections whose resources of the type are computed from some of the nodes.

        The type URL is "" for connections whose plan is computed from them.
        """
        feeds: dict[Feed[Connection], None] = {}
        for node in nodes:
            feeds |= dict.fromkeys(self._feeds.feeds_of(node))
            if (connections := self._by_plan.get(node)) is not None:
                yield "", tuple(connections)
        for feed in feeds:
            yield feed.type_url, tuple(feed.readers)

    def cached_resources(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        """Return the serialized resources of connected proxies.

        The result maps each type URL to its groups, and each group maps names to resources.
        """
        feeds: dict[str, dict[Feed[Connection], None]] = {}
        for connection in self._connections.values():
            for type_url, feed in connection.feeds():
                feeds.setdefault(type_url, {})[feed] = None
        groups = {
            type_url: dict.fromkeys(snapshot for feed in of_type for snapshot in feed.snapshots)
            for type_url, of_type in feeds.items()
        }
        return {type_url: [snapshot.by_name for snapshot in snapshots] for type_url, snapshots in groups.items()}

    def clear_cache(self) -> None:
        """Drop the values that are cached for disconnected proxies."""
        self._remove_disconnected(time.monotonic())
        self.db.collect()
        if self.counts_cache:
            self.metrics.cache_evicted("clear")

    def count_cached(self) -> int:
        """Return the number of serialized resources."""
        return sum(len(group) for groups in self.cached_resources().values() for group in groups)

    def count_behind(self) -> int:
        """Return the number of connections that have unprocessed changes or are processing changes."""
        return len(self._behind)

    def count_waiting(self) -> int:
        """Return the number of connections with unprocessed changes."""
        return sum(connection.dirty_since is not None for connection in self._connections.values())

    @property
    def cache_reads(self) -> tuple[int, int]:
        """Return the numbers of cache hits and misses."""
        return self._feeds.hits, self._feeds.misses

    def disconnect(self, connection_id: str) -> None:
        """End a stream. Its proxy will reconnect."""
        connection = self._connections.get(connection_id)
        if connection is not None:
            connection.end()
