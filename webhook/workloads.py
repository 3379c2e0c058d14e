"""Workloads as Kubernetes' API writes them: where their pods are, and which zeros are written all the same."""

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
"""The path of the pod, or of the template of pods, in a workload of each kind."""
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
    """Returns a workload with the numbers that are written even when they are 0, and without those that are not."""
    kind = workload.get("kind") or ""
    made = dict(workload)
    if status := _STATUS.get(kind):
        made["status"] = {**dict.fromkeys(status, 0), **(workload.get("status") or {})}
    spec = {**_SPEC.get(kind, {}), **(workload.get("spec") or {})}
    for name in _UNWRITTEN.get(kind, ()):
        if not spec.get(name):
            spec.pop(name, None)
    return {**made, "spec": spec}
