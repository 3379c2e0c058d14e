"""Endpoints: the addresses behind clusters, as the control plane knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HEAD = ("ENDPOINT", "STATUS", "WEIGHT", "LOCALITY", "CLUSTER")


def rows(assignments: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns a row for each endpoint, by cluster, in the order in which the proxy gets them."""
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


def address(of: dict[str, Any]) -> str:
    """Returns `10.0.0.1:80`, `[fd00::1]:80`, a Unix socket's path, or the name of an internal listener."""
    if socket := of.get("socketAddress"):
        host = socket.get("address", "")
        return f"[{host}]:{socket.get('portValue', 0)}" if ":" in host else f"{host}:{socket.get('portValue', 0)}"
    if pipe := of.get("pipe"):
        return f"unix://{pipe.get('path', '')}"
    return f"internal {of.get('envoyInternalAddress', {}).get('serverListenerName', '')}"


def _status(endpoint: dict[str, Any]) -> str:
    status: str = endpoint.get("healthStatus", "UNKNOWN")
    return "HEALTHY" if status == "UNKNOWN" else status


def _locality(group: dict[str, Any]) -> str:
    found = group.get("locality", {})
    levels = "/".join(found.get(level, "") for level in ("region", "zone", "subZone")).rstrip("/")
    return f"{levels or '-'} (priority {group['priority']})" if group.get("priority") else levels or "-"
