"""How far each connected proxy is, as rows for the page."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pilot.debug.sources import Connection
from pilot.lib.text import cut
from pilot.lib.xds_types import short_name

State = Literal["synced", "waiting", "error"]
ERROR_LENGTH = 500


class ProxyRow(NamedTuple):
    """A stream. `since` is Unix seconds; `waits_since` those of the oldest response that is not acknowledged, 0.0 for none; `error` is what the proxy
    said of what it refuses, "" where it takes everything. `acknowledged` counts nonces that changed between two looks only by being another value."""

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
        return {**self._asdict(), "state": self.state}


def proxy_rows(connections: Iterable[Connection]) -> Iterator[ProxyRow]:
    """Yields a row for each stream."""
    for connection in connections:
        proxy, watches = connection.proxy, connection.watches
        waits = [w.sent_at for w in watches.values() if w.nonce_sent != w.nonce_acked and w.sent_at and not w.last_error]
        errors = [f"{short_name(url)}: {cut(w.last_error, ERROR_LENGTH)}" for url, w in watches.items() if w.last_error]
        name = proxy.id.rpartition(".")[0] if "." in proxy.id else proxy.id
        yield ProxyRow(
            connection.id, name, proxy.namespace, str(proxy.type), proxy.version, connection.connected_at, min(waits, default=0.0), "; ".join(errors),
        )  # fmt: skip


def last_sent(connection: Connection) -> tuple[str, float]:
    """Returns the id of a stream, and when it was sent its last response: Unix seconds, 0.0 before the first."""
    return connection.id, max((watch.sent_at for watch in connection.watches.values()), default=0.0)


class Difference(NamedTuple):
    """Rows that are new or have changed, and the ids of streams that are gone."""

    changed: list[ProxyRow]
    gone: list[str]


def difference(before: Mapping[str, ProxyRow], now: Mapping[str, ProxyRow]) -> Difference:
    """Returns what changed from one look to the next."""
    return Difference([row for key, row in now.items() if before.get(key) != row], [key for key in before if key not in now])
