"""Sync status of connected proxies, as rows of the dashboard."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pilot.debug.slices import collect_all
from pilot.debug.sources import ConnectedProxy, Fleet
from pilot.lib.text import cut
from pilot.lib.xds_types import short_name

State = Literal["synced", "waiting", "error"]
ERROR_LENGTH = 500


class ProxyRow(NamedTuple):
    """The dashboard row of a stream. Times are Unix seconds.

    `since` is when the proxy connected. `waits_since` is when the oldest unacknowledged response was sent, or 0.0 if
    there is none. `error` contains the messages of current NACKs, or is "" if there are none.
    """

    id: str
    name: str
    namespace: str
    kind: str
    version: str
    since: float
    waits_since: float
    error: str

    @property
    def state(self) -> State:
        return "error" if self.error else "waiting" if self.waits_since else "synced"

    def plain(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {
            "id": self.id,
            "name": self.name,
            "namespace": self.namespace,
            "kind": self.kind,
            "version": self.version,
            "since": self.since,
            "waits_since": self.waits_since,
            "error": self.error,
            "state": self.state,
        }


class StreamSnapshot(NamedTuple):
    """A snapshot of a stream. `sent_at` is the Unix time of the last response, or 0.0 before the first one."""

    row: ProxyRow
    sent_at: float
    activity: int


def snapshot_stream(connection: ConnectedProxy, previous: ProxyRow | None = None) -> StreamSnapshot:
    """Return a snapshot of a stream. If the row has not changed, it is the `previous` object."""
    waits = sent_at = 0.0
    errors: list[str] = []
    for url, watch in connection.subscriptions.items():
        at = watch.sent_at
        sent_at = max(sent_at, at)
        if watch.last_error:
            errors.append(f"{short_name(url)}: {cut(watch.last_error, ERROR_LENGTH)}")
        elif at and watch.nonce_sent != watch.nonce_acked:
            waits = min(waits or at, at)
    error = "; ".join(errors)
    if previous is None or previous.waits_since != waits or previous.error != error:
        previous = _row(connection, waits, error)
    return StreamSnapshot(previous, sent_at, connection.activity)


def _row(connection: ConnectedProxy, waits: float, error: str) -> ProxyRow:
    proxy = connection.proxy
    name = proxy.id.rpartition(".")[0] if "." in proxy.id else proxy.id
    return ProxyRow(
        connection.id, name, proxy.namespace, str(proxy.type), proxy.version, connection.connected_at, waits, error
    )


class Difference(NamedTuple):
    """New and changed rows, the ids of closed streams, and the number of existing streams that received a response."""

    changed: list[ProxyRow]
    gone: list[str]
    reached: int


class ProxyRows:
    """The rows of all connected proxies.

    The cost of an update is proportional to the activity since the previous update.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._snapshots: dict[str, StreamSnapshot] = {}
        self._waiting: set[str] = set()

    @property
    def waiting(self) -> int:
        """The number of proxies that have unacknowledged responses."""
        return len(self._waiting)

    def plain(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects."""
        return [seen.row.plain() for seen in self._snapshots.values()]

    async def poll(self) -> Difference:
        """Update the rows in slices, and return what has changed since the previous update."""
        current, due, stayed = self._snapshots, [], 0
        for connection in self._fleet.connections():
            previous = current.get(connection.id)
            stayed += previous is not None
            if previous is None or previous.activity != connection.activity:
                due.append((connection, previous))
        snapshots = await collect_all(
            snapshot_stream(connection, previous.row if previous is not None else None) for connection, previous in due
        )
        gone: list[str] = []
        if stayed < len(current):
            connected_ids = {connection.id for connection in self._fleet.connections()}
            gone = [key for key in current if key not in connected_ids]
            for key in gone:
                del current[key]
        changed: list[ProxyRow] = []
        reached = 0
        for (_, previous), now in zip(due, snapshots, strict=True):
            reached += previous is not None and previous.sent_at != now.sent_at
            if previous is None or previous.row is not now.row:
                changed.append(now.row)
            current[now.row.id] = now
        self._waiting.difference_update(gone, (row.id for row in changed))
        self._waiting.update(row.id for row in changed if row.state == "waiting")
        return Difference(changed, gone, reached)
