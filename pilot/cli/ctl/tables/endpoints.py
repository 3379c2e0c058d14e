"""Endpoints: the addresses of clusters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HEAD = ("ENDPOINT", "STATUS", "WEIGHT", "LOCALITY", "CLUSTER")


def rows(assignments: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each endpoint, sorted by cluster. Within a cluster, the order is that of the proxy."""
    return [
        (
            address(endpoint["endpoint"]["address"]),
            _status(endpoint),
            str(endpoint.get("loadBalancingWeight", 1)),
            _locality(group),
            a["clusterName"],
        )
        for a in sorted(assignments, key=lambda a: str(a["clusterName"]))
        for group in a.get("endpoints", ())
        for endpoint in group.get("lbEndpoints", ())
    ]


def address(envoy_address: dict[str, Any]) -> str:
    """Return an address such as `10.0.0.1:80` or `[fd00::1]:80`, a Unix socket's path, or the name of an internal
    listener."""
    if socket := envoy_address.get("socketAddress"):
        host = socket.get("address", "")
        return f"[{host}]:{socket.get('portValue', 0)}" if ":" in host else f"{host}:{socket.get('portValue', 0)}"
    if pipe := envoy_address.get("pipe"):
        return f"unix://{pipe.get('path', '')}"
    return f"internal {envoy_address.get('envoyInternalAddress', {}).get('serverListenerName', '')}"


def _status(endpoint: dict[str, Any]) -> str:
    status: str = endpoint.get("healthStatus", "UNKNOWN")
    return "HEALTHY" if status == "UNKNOWN" else status


def _locality(group: dict[str, Any]) -> str:
    locality = group.get("locality", {})
    levels = "/".join(locality.get(level, "") for level in ("region", "zone", "subZone")).rstrip("/")
    return f"{levels or '-'} (priority {group['priority']})" if group.get("priority") else levels or "-"
