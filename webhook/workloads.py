"""Workload kinds: the path to the Pod template in each kind, and the zero values that Kubernetes serializes."""

from __future__ import annotations

from typing import Any

Plain = dict[str, Any]
PLACES: dict[str, tuple[str, ...]] = {
    "Pod": (),
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "DeploymentConfig"),
        ("spec", "template"),
    ),
}
"""Mapping from workload kinds to the path of the Pod or Pod template."""
_STATUS: dict[str, tuple[str, ...]] = {
    "DaemonSet": ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"),
    "ReplicaSet": ("replicas",),
    "ReplicationController": ("replicas",),
    "StatefulSet": ("availableReplicas", "replicas"),
    "DeploymentConfig": (
        "availableReplicas",
        "latestVersion",
        "observedGeneration",
        "replicas",
        "unavailableReplicas",
        "updatedReplicas",
    ),
}
_SPEC: dict[str, Plain] = {"DeploymentConfig": {"replicas": 0, "test": False}}
_UNWRITTEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Deployment", "DeploymentConfig"), ("minReadySeconds", "paused")),
    **dict.fromkeys(("DaemonSet", "ReplicaSet", "StatefulSet", "ReplicationController"), ("minReadySeconds",)),
}


def with_zeros(workload: Plain) -> Plain:
    """Return a workload with the zero values that Kubernetes serializes, and without the zero values that it omits."""
    kind = workload.get("kind") or ""
    result = dict(workload)
    if status := _STATUS.get(kind):
        result["status"] = {**dict.fromkeys(status, 0), **(workload.get("status") or {})}
    spec = {**_SPEC.get(kind, {}), **(workload.get("spec") or {})}
    for name in _UNWRITTEN.get(kind, ()):
        if not spec.get(name):
            spec.pop(name, None)
    return {**result, "spec": spec}
