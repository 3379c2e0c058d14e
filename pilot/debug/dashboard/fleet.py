"""How far each connected proxy is, as rows for the page."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pilot.debug.sources import ConnectedProxy
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
        return {**self._asdict(), "state": self.state}


class Seen(NamedTuple):
    """A stream at one moment, and when it was sent its last response: Unix seconds, 0.0 before the first."""

    row: ProxyRow
    sent: float


def look_at(connection: ConnectedProxy, known: ProxyRow | None = None) -> Seen:
    """Returns a stream as it is now. `known` is its row of before, which is the same one where nothing changed: that is the rule with thousands."""
    waits = sent = 0.0
    errors: list[str] = []
    for url, watch in connection.watches.items():
        at = watch.sent_at
        sent = max(sent, at)
        if watch.last_error:
            errors.append(f"{short_name(url)}: {cut(watch.last_error, ERROR_LENGTH)}")
        elif at and watch.nonce_sent != watch.nonce_acked:
            waits = min(waits or at, at)
    error = "; ".join(errors)
    if known is None or known.waits_since != waits or known.error != error:
        known = _row(connection, waits, error)
    return Seen(known, sent)


def _row(connection: ConnectedProxy, waits: float, error: str) -> ProxyRow:
    proxy = connection.proxy
    name = proxy.id.rpartition(".")[0] if "." in proxy.id else proxy.id
    return ProxyRow(connection.id, name, proxy.namespace, str(proxy.type), proxy.version, connection.connected_at, waits, error)


class Difference(NamedTuple):
    """Rows that are new or have changed, and the ids of streams that are gone."""

    changed: list[ProxyRow]
    gone: list[str]


def difference(before: Mapping[str, ProxyRow], now: Mapping[str, ProxyRow]) -> Difference:
    """Returns what changed from one look to the next."""
    changed = [row for key, row in now.items() if (known := before.get(key)) is not row and known != row]
    return Difference(changed, [key for key in before if key not in now])
