"""Diagnosis of workloads that do not become ready. It uses the states of their pods, and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ObjectClient, VersionedKind

Plain = dict[str, Any]
POD = VersionedKind("v1", "Pod")
EVENT = VersionedKind("v1", "Event")
_MAX_SHOWN = 3
"""Maximum number of pods in a diagnosis, and of events per object."""
_IMAGE_ADVICE = "check that the image exists and that nodes can pull it: hub, tag and values.global.imagePullSecrets"
_ADVICE = {
    "ImagePullBackOff": _IMAGE_ADVICE,
    "ErrImagePull": _IMAGE_ADVICE,
    "InvalidImageName": "correct hub and tag",
    "CrashLoopBackOff": "check the logs of the last run: kubectl logs -n {namespace} {pod} --previous",
    "CreateContainerConfigError": "check that the ConfigMaps and Secrets that the pod refers to exist",
    "Unschedulable": "no node fits the pod: check its resource requests, nodeSelector, affinity and tolerations",
    "FailedMount": "check that the ConfigMaps, Secrets and volumes that the pod mounts exist",
    "FailedCreate": "the pod could not be created: check quotas, admission webhooks and Pod Security",
}


async def diagnose(objects: ObjectClient, workload: Plain) -> list[str]:
    """Return the likely causes why a workload is not ready, one per line. If they cannot be read, return []."""
    try:
        return [line async for line in _diagnose(objects, workload)]
    except KubeError:
        return []


async def _diagnose(objects: ObjectClient, workload: Plain) -> AsyncIterator[str]:
    namespace = workload["metadata"].get("namespace") or ""
    labels = (workload.get("spec") or {}).get("selector", {}).get("matchLabels") or {}
    pods = await objects.list(POD, ",".join(f"{k}={v}" for k, v in sorted(labels.items())), namespace)
    unready = [pod for pod in pods if not _is_ready(pod)]
    for pod in unready[:_MAX_SHOWN]:
        name = pod["metadata"]["name"]
        for location, reason, message in _problems(pod):
            yield f"pod {namespace}/{name}{location}: {': '.join(filter(None, (reason, message)))}"
            if advice := _ADVICE.get(reason):
                yield f"  {advice.format(namespace=namespace, pod=name)}"
        for line in await _warning_events(objects, namespace, name):
            yield f"  {line}"
    if not pods:
        for condition in (workload.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "ReplicaFailure" or condition.get("status") == "False":
                yield f"{condition.get('reason', condition['type'])}: {condition.get('message', '')}"
        for line in await _warning_events(objects, namespace, workload["metadata"]["name"]):
            yield line
        yield (
            "no pods have been created; for details, run "
            f"kubectl describe -n {namespace} {workload['kind'].lower()} {workload['metadata']['name']}"
        )


def _is_ready(pod: Plain) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in (pod.get("status") or {}).get("conditions") or ()
    )


def _problems(pod: Plain) -> Iterator[tuple[str, str, str]]:
    """Yield the location, reason and message of each problem of an unready pod."""
    status = pod.get("status") or {}
    has_problem = False
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state") or {}
        problem = state.get("waiting") or (
            state.get("terminated") if (state.get("terminated") or {}).get("exitCode") else None
        )
        if problem and problem.get("reason") not in ("PodInitializing", "ContainerCreating"):
            has_problem = True
            yield (
                f", container {container['name']}",
                str(problem.get("reason") or ""),
                str(problem.get("message") or ""),
            )
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            has_problem = True
            yield "", str(condition.get("reason") or ""), str(condition.get("message") or "")
    if not has_problem:
        yield "", str(status.get("phase") or "Pending"), "not ready"


async def _warning_events(objects: ObjectClient, namespace: str, name: str) -> list[str]:
    """Return the most recent warning events of an object."""
    events = await objects.list(EVENT, "", namespace, f"involvedObject.name={name}")
    warnings = [event for event in events if event.get("type") != "Normal"]
    warnings.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return [f"{event.get('reason', '')}: {event.get('message', '')}" for event in warnings[-_MAX_SHOWN:]]
