"""Whether what was applied has come up: what is still missing of an object, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Plain = Mapping[str, Any]
WORKLOADS = frozenset({"Deployment", "DaemonSet", "StatefulSet"})
WAITED_FOR = WORKLOADS | {"CustomResourceDefinition", "Namespace"}


def unready_reason(plain: Plain) -> str:
    """Returns what an object lacks, "" where it is ready. Objects of other kinds than `WAITED_FOR` always are."""
    status: Plain = plain.get("status") or {}
    kind = plain["kind"]
    if kind == "CustomResourceDefinition":
        return "" if _condition(status, "Established") == "True" else "not established"
    if kind == "Namespace":
        return (
            ""
            if status.get("phase", "Active") == "Active" and not plain["metadata"].get("deletionTimestamp")
            else "being deleted"
        )
    if kind not in WORKLOADS:
        return ""
    if (status.get("observedGeneration") or 0) < (plain["metadata"].get("generation") or 0):
        return "not noticed yet"
    if kind == "DaemonSet":
        wanted, updated, ready = (
            status.get(name) or 0 for name in ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
        )
    else:
        replicas: Any = (plain.get("spec") or {}).get("replicas")
        wanted = 1 if replicas is None else replicas
        updated, ready = status.get("updatedReplicas") or 0, status.get("readyReplicas") or 0
    return "" if min(updated, ready) >= wanted else f"{min(updated, ready)} of {wanted} pods ready"


def _condition(status: Plain, name: str) -> str:
    return next((str(c.get("status")) for c in status.get("conditions") or () if c.get("type") == name), "")
