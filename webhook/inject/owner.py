"""The workload that a pod belongs to, as far as the pod itself tells."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pilot.lib.labels import POD_TEMPLATE_HASH, ROLLOUT_TEMPLATE_HASH

_CRON_JOB = re.compile(r"(.+)-\d{8,10}$")


class WorkloadOwner(NamedTuple):
    """A workload by its kind, API version, name and namespace."""

    kind: str
    api_version: str
    name: str
    namespace: str


def owner_of(pod: dict[str, Any]) -> WorkloadOwner:
    """Returns the Deployment, CronJob or the like whose controller made a pod of a generated name; else the pod itself."""
    metadata = pod.get("metadata") or {}
    itself = WorkloadOwner("Pod", "v1", metadata.get("name") or "", metadata.get("namespace") or "")
    controller = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), None)
    if not metadata.get("generateName") or controller is None:
        return itself
    name, kind, version = controller.get("name") or "", controller.get("kind") or "", controller.get("apiVersion") or ""
    found = _above(WorkloadOwner(kind, version, name, itself.namespace), metadata.get("labels") or {})
    return found if found.name else found._replace(name=itself.name)


def _above(controller: WorkloadOwner, labels: dict[str, str]) -> WorkloadOwner:
    """Returns what made the controller of a pod, by its name and the pod's labels; the controller where they do not tell."""
    kind, name = controller.kind, controller.name
    if kind == "ReplicaSet":
        for label, made_by, version in (
            (POD_TEMPLATE_HASH, "Deployment", controller.api_version),
            (ROLLOUT_TEMPLATE_HASH, "Rollout", "v1alpha1"),
        ):
            if (value := labels.get(label)) and name.endswith(value):
                return controller._replace(kind=made_by, api_version=version, name=name.removesuffix(f"-{value}"))
    if kind == "ReplicationController" and labels.get("deploymentconfig"):
        return controller._replace(kind="DeploymentConfig", name=labels["deploymentconfig"])
    if kind == "Job" and (found := _CRON_JOB.match(name)):
        return controller._replace(kind="CronJob", api_version="batch/v1", name=found[1])
    return controller
