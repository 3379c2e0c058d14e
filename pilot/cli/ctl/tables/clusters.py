"""Clusters: upstreams of the proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.source import config_object
from pilot.envoy.names import parse_cluster

HEAD = ("SERVICE", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE")


def rows(clusters: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each cluster, sorted by service and port."""
    return [row for _, row in sorted((_order(cluster), _row(cluster)) for cluster in clusters)]


def _order(cluster: dict[str, Any]) -> tuple[str, int, str]:
    name = parse_cluster(cluster["name"])
    return (name.host, name.port, name.subset) if name else (cluster["name"], 0, "")


def _row(cluster: dict[str, Any]) -> tuple[str, ...]:
    name, kind = (
        parse_cluster(cluster["name"]),
        cluster.get("clusterType", {}).get("name") or cluster.get("type", "STATIC"),
    )
    rule = config_object(cluster, "destination-rule")
    if name is None:
        return cluster["name"], "-", "-", "-", kind, rule
    return name.host or "-", str(name.port), name.subset or "-", name.direction, kind, rule
