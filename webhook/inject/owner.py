"""The workload that owns a Pod, derived from the Pod alone."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pilot.lib.labels import POD_TEMPLATE_HASH, ROLLOUT_TEMPLATE_HASH

_CRON_JOB = re.compile(r"(.+)-\d{8,10}$")


class WorkloadOwner(NamedTuple):
    """Identifies a workload."""

    kind: str
    api_version: str
    name: str
    namespace: str


def owner_of(pod: dict[str, Any]) -> WorkloadOwner:
    """Return the Deployment, CronJob or other workload that owns a Pod.

    If the Pod's name is not generated, the Pod itself is the workload.
    """
    metadata = pod.get("metadata") or {}
    itself = WorkloadOwner("Pod", "v1", metadata.get("name") or "", metadata.get("namespace") or "")
    controller = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), None)
    if not metadata.get("generateName") or controller is None:
        return itself
    name, kind, version = controller.get("name") or "", controller.get("kind") or "", controller.get("apiVersion") or ""
    owner = _above(WorkloadOwner(kind, version, name, itself.namespace), metadata.get("labels") or {})
    return owner if owner.name else owner._replace(name=itself.name)


def _above(controller: WorkloadOwner, labels: dict[str, str]) -> WorkloadOwner:
    """Return the owner of a Pod's controller, derived from the controller's name and the Pod's labels.

    Return the controller itself if it has no owner.
    """
    kind, name = controller.kind, controller.name
    if kind == "ReplicaSet":
        for label, owner_kind, version in (
            (POD_TEMPLATE_HASH, "Deployment", controller.api_version),
            (ROLLOUT_TEMPLATE_HASH, "Rollout", "v1alpha1"),
        ):
            if (value := labels.get(label)) and name.endswith(value):
                return controller._replace(kind=owner_kind, api_version=version, name=name.removesuffix(f"-{value}"))
    if kind == "ReplicationController" and labels.get("deploymentconfig"):
        return controller._replace(kind="DeploymentConfig", name=labels["deploymentconfig"])
    if kind == "Job" and (match := _CRON_JOB.match(name)):
        return controller._replace(kind="CronJob", api_version="batch/v1", name=match[1])
    return controller
