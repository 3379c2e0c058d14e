"""The debug page telemetryz, which shows Telemetry objects and how they apply to a proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.config.builtins import to_builtins
from pilot.config.kinds.istio import TELEMETRY
from pilot.config.object import Object, age
from pilot.config.telemetry import Telemetry
from pilot.debug.page import Later, Query, requested_connection
from pilot.debug.sources import Sources
from pilot.mesh.security.policies import proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

LEVELS = ("Root", "Proxy", "Namespace", "Workload")
_NONE = {"Namespace": "", "Name": ""}


def telemetryz(sources: Sources, query: Query) -> Any:
    """Return all Telemetry objects, grouped by namespace and ordered by age, oldest first.

    If the query contains proxyID, return only the objects that apply to the proxy.
    """
    if "proxyID" in query:
        return proxy_telemetry(sources.db, requested_connection(sources, query).proxy_key)
    rows, root = [row for _, row in TELEMETRY.table(sources.db).rows()], mesh_config(sources.db).root_namespace
    return Later(lambda: {"telemetries": _show(rows, root)})


def _show(rows: Iterable[Object[Telemetry]], root: str) -> dict[str, Any]:
    rows_by_namespace: dict[str, list[Object[Telemetry]]] = {}
    for row in rows:
        rows_by_namespace.setdefault(row.namespace, []).append(row)
    telemetries = {
        namespace: [
            {"name": row.name, "namespace": row.namespace, "spec": to_builtins(row.spec)}
            for row in sorted(namespace_rows, key=age)
        ]
        for namespace, namespace_rows in sorted(rows_by_namespace.items())
    }
    return {"namespace_to_telemetries": telemetries, "root_namespace": root}


def proxy_telemetry(db: Mesh, node_id: str) -> dict[str, Any]:
    """Return the Telemetry objects that apply to a proxy at each level, and their parts in merge order."""
    root = mesh_config(db).root_namespace
    rows = [
        row
        for key in proxy_policies(db, node_id).of(TELEMETRY.id.name)
        if (row := TELEMETRY.table(db).peek(key)) is not None
    ]
    by_level = {_level(row, root): {"Namespace": row.namespace, "Name": row.name} for row in rows}
    return {
        **{level: by_level.get(level, _NONE) for level in LEVELS},
        "Metrics": [to_builtins(entry) for row in rows for entry in row.spec.metrics],
        "Logging": [_logging(row, root) for row in rows if row.spec.access_logging],
        "Tracing": [to_builtins(entry) for row in rows for entry in row.spec.tracing],
    }


def _level(row: Object[Telemetry], root: str) -> str:
    spec = row.spec
    if (spec.selector is not None and spec.selector.match_labels) or spec.target_ref or spec.target_refs:
        return "Workload"
    return "Root" if row.namespace == root else "Proxy"


def _logging(row: Object[Telemetry], root: str) -> dict[str, Any]:
    levels = {
        level: {"Namespace": row.namespace, "Name": row.name} if level == _level(row, root) else _NONE
        for level in LEVELS
    }
    return {**levels, "Logging": [to_builtins(entry) for entry in row.spec.access_logging]}
