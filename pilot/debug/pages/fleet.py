"""Debug pages of connected proxies and their sync status: adsz, connections, syncz and force_disconnect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pilot.debug.page import Later, Query, TextAnswer, requested_connection
from pilot.debug.slices import collect_all
from pilot.debug.sources import ConnectedProxy, Sources, WatchedType
from pilot.lib.clock import rfc3339
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.registry.workloads import proxy_labels, proxy_locality

Watched = Mapping[str, tuple[Collection[str], Collection[str]]]
"""Mapping from type URL to the subscribed names, and the names that were sent for a wildcard subscription."""
_ZERO_TIME = "0001-01-01T00:00:00Z"
# Types that have separate fields in syncz, in addition to the table of all types
_LEGACY_FIELDS = {"cluster": "cds", "listener": "lds", "route": "rds", "endpoint": "eds", "extensionconfig": "ecds"}


async def adsz(sources: Sources, query: Query) -> Any:
    """Return all connections and their subscriptions. If the query contains proxyID, return only that connection.

    If the query contains `push`, push everything again instead.
    """
    if query.get("push"):
        return TextAnswer(f"Pushed to {sources.fleet.push_all()} servers\n")
    targets = [requested_connection(sources, query)] if query.get("proxyID") else _sorted(sources)
    described = await collect_all(
        (_client(connection) | _described(sources, connection), _watched(connection)) for connection in targets
    )
    return Later(lambda: _clients([client | _show_watches(watched) for client, watched in described]))


async def connections(sources: Sources, query: Query) -> Any:
    """Return a summary of all connections."""
    return _clients(await collect_all(_client(connection) for connection in _sorted(sources)))


async def syncz(sources: Sources, query: Query) -> Any:
    """Return the nonces that were sent to each proxy, and the nonces that it acknowledged.

    If the query contains `namespace`, include only proxies in it. If it contains proxyID, include only that proxy.
    """
    namespace = query.get("namespace", "")
    targets = [requested_connection(sources, query)] if query.get("proxyID") else sources.fleet.connections()
    shown = [c for c in targets if namespace in ("", c.proxy.namespace)]
    return await collect_all(
        _status(c) for c in sorted(shown, key=lambda c: (c.proxy.cluster_id, c.proxy.namespace, c.proxy.id, c.id))
    )


def force_disconnect(sources: Sources, query: Query) -> Any:
    """Close the stream of the proxy, which will reconnect."""
    sources.fleet.disconnect(requested_connection(sources, query).id)
    return TextAnswer("OK")


def _sorted(sources: Sources) -> list[ConnectedProxy]:
    return sorted(sources.fleet.connections(), key=lambda connection: connection.id)


def _clients(clients: list[dict[str, Any]]) -> dict[str, Any]:
    return {"totalClients": len(clients)} | ({"clients": clients} if clients else {})


def _client(connection: ConnectedProxy) -> dict[str, Any]:
    return {
        "connectionId": connection.id,
        "connectedAt": format_time(connection.connected_at),
        "address": connection.address,
    }


def _described(sources: Sources, connection: ConnectedProxy) -> dict[str, Any]:
    """Return a proxy's metadata, labels and locality. The labels and locality are from the registry if possible."""
    proxy, locality = connection.proxy, proxy_locality(sources.db, connection.proxy_key)
    levels = {"region": locality.region, "zone": locality.zone, "sub_zone": locality.subzone}
    parts: dict[str, Any] = {
        "labels": dict(proxy_labels(sources.db, connection.proxy_key)),
        "metadata": dict(proxy.metadata),
        "locality": {level: name for level, name in levels.items() if name},
    }
    return {name: value for name, value in parts.items() if value}


def _watched(connection: ConnectedProxy) -> Watched:
    return {type_url: (watch.names, watch.wildcard_names) for type_url, watch in connection.subscriptions.items()}


def _show_watches(watched: Watched) -> dict[str, Any]:
    """Return the names of each type that a proxy subscribes to or has received. This is slow if there are many."""
    shown = {
        type_url: sorted({*names, *wildcard_names} - {"*"}) for type_url, (names, wildcard_names) in watched.items()
    }
    return {"watches": shown} if shown else {}


def _status(connection: ConnectedProxy) -> dict[str, Any]:
    proxy = connection.proxy
    status: dict[str, Any] = {
        "cluster_id": proxy.cluster_id,
        "proxy": proxy.id,
        "proxy_type": str(proxy.type),
        "istio_version": proxy.version,
    }
    for name, short in _LEGACY_FIELDS.items():
        if watch := connection.subscriptions.get(BY_SHORT_NAME[short]):
            status |= {f"{name}_sent": watch.nonce_sent, f"{name}_acked": watch.nonce_acked}
    status["resources"] = {type_url: _resource_status(watch) for type_url, watch in connection.subscriptions.items()}
    return {name: value for name, value in status.items() if value}


def _resource_status(watch: WatchedType) -> dict[str, str]:
    shown = {
        "sent": watch.nonce_sent,
        "acked": watch.nonce_acked,
        "sentTime": format_time(watch.sent_at),
        "lastError": watch.last_error,
        "rejectedSince": format_time(watch.rejected_since) if watch.last_error and watch.rejected_since else "",
    }
    return {name: value for name, value in shown.items() if value}


def format_time(seconds: float) -> str:
    """Return Unix seconds as an RFC 3339 time. 0 is formatted as Go's zero time."""
    return rfc3339(seconds) if seconds else _ZERO_TIME
