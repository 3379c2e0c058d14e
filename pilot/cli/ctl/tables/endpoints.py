"""Endpoints: the addresses of clusters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.filters import Filters, socket_of

FILTERS = ("address", "port", "cluster", "status")
STATUSES = ("HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED")
"""The health statuses of Envoy. UNKNOWN, the default, is shown as HEALTHY."""
HEAD = ("ENDPOINT", "STATUS", "WEIGHT", "LOCALITY", "CLUSTER")


def select(assignments: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the assignments of the clusters that the filters admit, with only the endpoints that they admit."""
    selection = []
    for assignment in assignments:
        if filters.cluster not in ("", assignment["clusterName"]):
            continue
        groups = [
            group | {"lbEndpoints": endpoints}
            for group in assignment.get("endpoints", ())
            if (endpoints := [one for one in group.get("lbEndpoints", ()) if _admits(filters, one)])
        ]
        if groups:
            selection.append(assignment | {"endpoints": groups})
    return selection


def _admits(filters: Filters, endpoint: dict[str, Any]) -> bool:
    host, port = socket_of(endpoint["endpoint"]["address"])
    return (
        filters.address in ("", host)
        and filters.port in (0, port)
        and filters.status.upper() in ("", _status(endpoint).upper())
    )


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
    host, port = socket_of(envoy_address)
    if "socketAddress" not in envoy_address:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _status(endpoint: dict[str, Any]) -> str:
    status: str = endpoint.get("healthStatus", "UNKNOWN")
    return "HEALTHY" if status == "UNKNOWN" else status


def _locality(group: dict[str, Any]) -> str:
    locality = group.get("locality", {})
    levels = "/".join(locality.get(level, "") for level in ("region", "zone", "subZone")).rstrip("/")
    return f"{levels or '-'} (priority {group['priority']})" if group.get("priority") else levels or "-"
