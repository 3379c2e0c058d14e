"""How far each connected proxy is, as rows for the page."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pilot.debug.slices import all_of
from pilot.debug.sources import ConnectedProxy, Fleet
from pilot.lib.text import cut
from pilot.lib.xds_types import short_name

State = Literal["synced", "waiting", "error"]
ERROR_LENGTH = 500


class ProxyRow(NamedTuple):
    """A stream. `since` is Unix seconds; `waits_since` those of the oldest response that is not acknowledged, 0.0 for none; `error` is what the proxy
    said of what it refuses, "" where it takes everything."""

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
        """Returns the row for JSON."""
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


class Seen(NamedTuple):
    """A stream at one moment, when it was sent its last response (Unix seconds, 0.0 before the first), and its `activity` then."""

    row: ProxyRow
    sent: float
    activity: int


def look_at(connection: ConnectedProxy, known: ProxyRow | None = None) -> Seen:
    """Returns a stream as it is now. `known` is its row of before, which is the same one where nothing changed."""
    waits = sent = 0.0
    errors: list[str] = []
    for url, watch in connection.subscriptions.items():
        at = watch.sent_at
        sent = max(sent, at)
        if watch.last_error:
            errors.append(f"{short_name(url)}: {cut(watch.last_error, ERROR_LENGTH)}")
        elif at and watch.nonce_sent != watch.nonce_acked:
            waits = min(waits or at, at)
    error = "; ".join(errors)
    if known is None or known.waits_since != waits or known.error != error:
        known = _row(connection, waits, error)
    return Seen(known, sent, connection.activity)


def _row(connection: ConnectedProxy, waits: float, error: str) -> ProxyRow:
    proxy = connection.proxy
    name = proxy.id.rpartition(".")[0] if "." in proxy.id else proxy.id
    return ProxyRow(
        connection.id, name, proxy.namespace, str(proxy.type), proxy.version, connection.connected_at, waits, error
    )


class Difference(NamedTuple):
    """Rows that are new or have changed, the ids of streams that are gone, and how many of those that were there have been sent something."""

    changed: list[ProxyRow]
    gone: list[str]
    reached: int


class ProxyRows:
    """The rows of all connected proxies, as of the last look. A look costs what has been sent and received since the one before."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._seen: dict[str, Seen] = {}
        self._waiting: set[str] = set()

    @property
    def waiting(self) -> int:
        """Returns how many proxies have not acknowledged what they were sent."""
        return len(self._waiting)

    def plain(self) -> list[dict[str, Any]]:
        """Returns the rows for JSON."""
        return [seen.row.plain() for seen in self._seen.values()]

    async def look(self) -> Difference:
        """Looks at the proxies as they are now, in slices; returns what differs from the last time."""
        seen, due, stayed = self._seen, [], 0
        for connection in self._fleet.connections():
            known = seen.get(connection.id)
            stayed += known is not None
            if known is None or known.activity != connection.activity:
                due.append((connection, known))
        looked = await all_of(
            look_at(connection, known.row if known is not None else None) for connection, known in due
        )
        gone: list[str] = []
        if stayed < len(seen):
            here = {connection.id for connection in self._fleet.connections()}
            gone = [key for key in seen if key not in here]
            for key in gone:
                del seen[key]
        changed: list[ProxyRow] = []
        reached = 0
        for (_, known), now in zip(due, looked, strict=True):
            reached += known is not None and known.sent != now.sent
            if known is None or known.row is not now.row:
                changed.append(now.row)
            seen[now.row.id] = now
        self._waiting.difference_update(gone, (row.id for row in changed))
        self._waiting.update(row.id for row in changed if row.state == "waiting")
        return Difference(changed, gone, reached)
