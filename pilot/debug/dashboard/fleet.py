"""Sync status of connected proxies, as rows of the dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from pilot.debug.silence import STALE
from pilot.debug.slices import collect_all
from pilot.debug.sources import ConnectedProxy, Fleet
from pilot.lib.text import cut
from pilot.lib.xds_types import short_name

State = Literal["refused", "stale", "waiting", "synced"]
STATES: tuple[State, ...] = ("refused", "stale", "waiting", "synced")
"""All states, worst first."""
ERROR_LENGTH = 500
UNHEALTHY = 100
"""Maximum number of unhealthy proxies in a summary."""
MOST = 100
"""Maximum number of rows in a list."""


class ProxyRow(NamedTuple):
    """The dashboard row of a stream. Times are Unix seconds.

    `since` is when the proxy connected. `waits_since` is when the oldest unacknowledged response was sent, or 0.0 if
    there is none. `error` contains the messages of current NACKs, or is "" if there are none. `error_types` are the
    types that the proxy rejects, and `error_since` is when it received the first response that it rejected.
    """

    id: str
    name: str
    namespace: str
    kind: str
    version: str
    since: float
    waits_since: float
    error: str
    error_types: tuple[str, ...] = ()
    error_since: float = 0.0

    def state(self, now: float) -> State:
        """Return the state of the proxy at a Unix time."""
        if self.error:
            return "refused"
        if not self.waits_since:
            return "synced"
        return "stale" if now - self.waits_since >= STALE else "waiting"

    def plain(self, now: float) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return self._asdict() | {"state": self.state(now)}

    def rank(self, now: float) -> Any:
        """Return the sort key that puts the worst state first, and proxies that are in it for longer before others."""
        return STATES.index(self.state(now)), self.error_since or self.waits_since, self.namespace, self.name, self.id


class StreamSnapshot(NamedTuple):
    """A snapshot of a stream. `sent_at` is the Unix time of the last response, or 0.0 before the first one."""

    row: ProxyRow
    sent_at: float
    activity: int
    key: str


def snapshot_stream(connection: ConnectedProxy, previous: ProxyRow | None = None) -> StreamSnapshot:
    """Return a snapshot of a stream. If the row has not changed, it is the `previous` object."""
    waits = sent_at = since = 0.0
    errors: list[str] = []
    types: list[str] = []
    for url, watch in connection.subscriptions.items():
        at = watch.sent_at
        sent_at = max(sent_at, at)
        if watch.last_error:
            types.append(short_name(url))
            errors.append(f"{types[-1]}: {cut(watch.last_error, ERROR_LENGTH)}")
            since = min(since or watch.rejected_since, watch.rejected_since)
        elif at and watch.nonce_sent != watch.nonce_acked:
            waits = min(waits or at, at)
    error = "; ".join(errors)
    if previous is None or (previous.waits_since, previous.error, previous.error_since) != (waits, error, since):
        previous = _row(connection, waits, error, tuple(types), since)
    return StreamSnapshot(previous, sent_at, connection.activity, connection.proxy_key)


def _row(connection: ConnectedProxy, waits: float, error: str, types: tuple[str, ...], since: float) -> ProxyRow:
    proxy = connection.proxy
    name = proxy.id.rpartition(".")[0] if "." in proxy.id else proxy.id
    return ProxyRow(
        connection.id,
        name,
        proxy.namespace,
        str(proxy.type),
        proxy.version,
        connection.connected_at,
        waits,
        error,
        types,
        since,
    )


class ProxyRows:
    """The rows of all connected proxies.

    The cost of an update is proportional to the activity since the previous update.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._snapshots: dict[str, StreamSnapshot] = {}
        self._unsynced: dict[str, ProxyRow] = {}
        self._counts: dict[str, int] = {}

    async def poll(self) -> None:
        """Update the rows in slices."""
        current, due = self._snapshots, []
        connections = self._fleet.connections()
        for connection in connections:
            previous = current.get(connection.id)
            if previous is None or previous.activity != connection.activity:
                due.append((connection, previous))
        snapshots = await collect_all(
            snapshot_stream(connection, previous.row if previous is not None else None) for connection, previous in due
        )
        for snapshot in snapshots:
            row = snapshot.row
            if row.id not in current:
                self._counts[row.namespace] = self._counts.get(row.namespace, 0) + 1
            current[row.id] = snapshot
            if row.error or row.waits_since:
                self._unsynced[row.id] = row
            else:
                self._unsynced.pop(row.id, None)
        if len(connections) < len(current):
            self._drop(current.keys() - {connection.id for connection in connections})

    def _drop(self, gone: Iterable[str]) -> None:
        for key in gone:
            namespace = self._snapshots.pop(key).row.namespace
            self._unsynced.pop(key, None)
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]

    def summary(self, now: float) -> dict[str, Any]:
        """Return the number of proxies by state and by namespace, at a Unix time."""
        states: dict[str, int] = dict.fromkeys(STATES, 0)
        namespaces = {name: {"proxies": count} for name, count in sorted(self._counts.items())}
        for row in self._unsynced.values():
            state = row.state(now)
            states[state] += 1
            of_namespace = namespaces[row.namespace]
            of_namespace[state] = of_namespace.get(state, 0) + 1
        states["synced"] = len(self._snapshots) - len(self._unsynced)
        return {"proxies": len(self._snapshots), **states, "namespaces": namespaces}

    def unhealthy(self, now: float) -> list[ProxyRow]:
        """Return at most `UNHEALTHY` rows that are refused or stale at a Unix time, worst first."""
        rows = [row for row in self._unsynced.values() if row.state(now) in ("refused", "stale")]
        return sorted(rows, key=lambda row: row.rank(now))[:UNHEALTHY]

    def key_of(self, row: ProxyRow) -> str:
        """Return the key of a proxy in the table of proxies."""
        return self._snapshots[row.id].key


async def list_proxies(fleet: Fleet, namespace: str, state: str, text: str, now: float) -> dict[str, Any]:
    """Return at most `MOST` rows, worst first, and their total number.

    If `namespace`, `state` or `text` is not "", only matching rows are included. `text` matches a part of the name,
    namespace, type or version.
    """
    rows = [
        row
        for row in (s.row for s in await collect_all(snapshot_stream(c) for c in fleet.connections()))
        if namespace in ("", row.namespace)
        and state in ("", row.state(now))
        and text.lower() in f"{row.name}.{row.namespace} {row.kind} {row.version}".lower()
    ]
    await asyncio.to_thread(rows.sort, key=lambda row: row.rank(now))
    return {"total": len(rows), "proxies": [row.plain(now) for row in rows[:MOST]]}
