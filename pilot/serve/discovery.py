"""The connected proxies, and who of them is woken by a change."""
from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from pilot.derive import Derived, Node
from pilot.lib.clock import rfc3339
from pilot.lib.metrics import Metrics
from pilot.model.inputs import Mesh
from pilot.model.proxy import Proxy
from pilot.serve.connection import Connection
from pilot.serve.feed import Feeds
from pilot.serve.names import NameSets
from pilot.serve.session import Answer, Session
from pilot.translate.profile.plan import Plan

LINGER = 30.0


class Discovery:
    """Who is connected and what changes for them. `plan` says what a proxy, by its node id, is to be sent.

    A proxy that goes keeps its row and its derived values for `linger` seconds: most come back at once.
    """

    def __init__(
        self, db: Mesh, metrics: Metrics, plan: Derived[[str], Plan], linger: float = LINGER, now: Callable[[], float] = time.time
    ) -> None:
        self.db, self.metrics, self.name_sets = db, metrics, NameSets()
        self._plan, self._linger, self._now = plan, linger, now
        self._feeds: Feeds[Connection] = Feeds(db)
        self._connections: dict[str, Connection] = {}
        self._plans: dict[str, Node] = {}
        self._by_plan: dict[Node, dict[Connection, None]] = {}
        self._gone: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._versions = itertools.count(1)
        self.version = self._next_version()

    # -- changes -------------------------------------------------------------------------------------------------------

    def wake(self, reached: Iterable[Node], reasons: Mapping[str, int]) -> int:
        """Wake the connections that the nodes, which a commit reported, concern; how many. `reasons`: kinds of changes."""
        concerned: dict[Connection, None] = {}
        reached = tuple(reached)
        for node in reached:
            concerned |= self._by_plan.get(node, {})
        for feed in self._feeds.reached(reached):
            concerned |= feed.readers
        if concerned:
            self.version = self._next_version()
            self._mark(concerned, reasons)
        return len(concerned)

    def push_all(self) -> int:
        """Send everything to everybody again; the number of proxies."""
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
        """Register a stream for pushes; the proxy becomes a row."""
        connection = Connection(next(self._numbers), node_id, proxy, address, self._now(), session)
        self._connections[connection.id] = connection
        self._gone.pop(node_id, None)
        self._put([(node_id, proxy)])
        node = self._plans.get(node_id)
        if node is None:
            node = self._plans[node_id] = self.db.watch(self._plan, node_id)
        self._by_plan.setdefault(node, {})[connection] = None
        self.metrics.connected(proxy.version)
        return connection

    def closed(self, connection: Connection) -> None:
        """Its stream has ended: undo `connect`."""
        if self._connections.pop(connection.id, None) is None:
            return
        connection.close(self._feeds)
        followers = self._by_plan[self._plans[connection.node_id]]
        followers.pop(connection, None)
        if not followers:
            self._gone[connection.node_id] = time.monotonic()
        self.metrics.disconnected(connection.proxy.version)

    def sweep(self) -> int:
        """Forget the proxies that have been gone for long, and what was derived for nobody else; the number of proxies."""
        limit = time.monotonic() - self._linger
        gone = [node_id for node_id, since in self._gone.items() if since <= limit]
        for node_id in gone:
            del self._gone[node_id]
            node = self._plans.pop(node_id)
            del self._by_plan[node]
            self.db.unwatch(node)
        if gone:
            self._put((node_id, None) for node_id in gone)
            self.db.collect()
        return len(gone)

    def _put(self, rows: Iterable[tuple[str, Proxy | None]]) -> None:
        self.wake(self.db.commit([(self.db.proxies, node_id, proxy) for node_id, proxy in rows]), {"proxy": 1})

    def next_answer(self, connection: Connection) -> Answer | None:
        """What is to be sent next on a connection, from what is true now."""
        node = self._plans[connection.node_id]
        if node.stale:
            self.db.refresh(node)
        return connection.next_answer(node, self._feeds)

    # -- for the debug pages -------------------------------------------------------------------------------------------

    def connections(self) -> Sequence[Connection]:
        return tuple(self._connections.values())

    def disconnect(self, connection_id: str) -> None:
        """End one stream; its proxy will come back."""
        connection = self._connections.get(connection_id)
        if connection is not None:
            connection.end()
