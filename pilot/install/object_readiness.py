"""Readiness of applied objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Plain = Mapping[str, Any]
WORKLOADS = frozenset({"Deployment", "DaemonSet", "StatefulSet"})
KINDS_WITH_READINESS = WORKLOADS | {"CustomResourceDefinition", "Namespace"}


def unready_reason(plain: Plain) -> str:
    """Return the reason why an object is not ready, or "" if it is ready. Kinds that have no readiness are always
    ready."""
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
        return "not observed by its controller yet"
    if kind == "DaemonSet":
        desired, updated, ready = (
            status.get(name) or 0 for name in ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
        )
    else:
        replicas: Any = (plain.get("spec") or {}).get("replicas")
        desired = 1 if replicas is None else replicas
        updated, ready = status.get("updatedReplicas") or 0, status.get("readyReplicas") or 0
    return "" if min(updated, ready) >= desired else f"{min(updated, ready)} of {desired} pods ready"


def _condition(status: Plain, condition_type: str) -> str:
    conditions = status.get("conditions") or ()
    return next((str(c.get("status")) for c in conditions if c.get("type") == condition_type), "")
