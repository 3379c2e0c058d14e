"""Clusters: upstreams of the proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.filters import Filters
from pilot.cli.ctl.tables.source import config_object
from pilot.envoy.names import parse_cluster

HEAD = ("SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE", "NAME")
FILTERS = ("fqdn", "port", "direction", "subset")


def select(clusters: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the clusters that the filters admit."""
    return [cluster for cluster in clusters if _admits(filters, cluster["name"])]


def _admits(filters: Filters, text: str) -> bool:
    name = parse_cluster(text)
    if name is None:
        return filters.fqdn in text and not (filters.port or filters.direction or filters.subset)
    return (
        filters.fqdn in name.host
        and filters.port in (0, name.port)
        and filters.direction in ("", name.direction)
        and filters.subset in name.subset
    )


def rows(clusters: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each cluster, sorted by service and port."""
    return [row for _, row in sorted((_order(cluster), _row(cluster)) for cluster in clusters)]


def _order(cluster: dict[str, Any]) -> tuple[str, int, str]:
    name = parse_cluster(cluster["name"])
    return (name.host, name.port, name.subset) if name else (cluster["name"], 0, "")


def _row(cluster: dict[str, Any]) -> tuple[str, ...]:
    text: str = cluster["name"]
    name, kind = parse_cluster(text), cluster.get("clusterType", {}).get("name") or cluster.get("type", "STATIC")
    rule = config_object(cluster, "destination-rule") or "-"
    if name is None:
        return text, "-", "-", "-", kind, rule, text
    return name.host or "-", str(name.port), name.subset or "-", name.direction, kind, rule, text
