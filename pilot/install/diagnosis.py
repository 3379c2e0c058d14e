"""Why a workload does not come up: which pod, what its containers and the events about it say, and what one can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pilot.kube.errors import KubeError
from pilot.kube.object_client import ObjectClient, VersionedKind

Plain = dict[str, Any]
POD = VersionedKind("v1", "Pod")
EVENT = VersionedKind("v1", "Event")
_MOST = 3
"""Pods and events that are told of."""
_ADVICE = {
    "ImagePullBackOff": "name an image that the nodes can pull: hub and tag, or values.global.imagePullSecrets",
    "ErrImagePull": "name an image that the nodes can pull: hub and tag, or values.global.imagePullSecrets",
    "InvalidImageName": "correct hub and tag",
    "CrashLoopBackOff": "look at what it logged: kubectl logs -n {namespace} {pod} --previous",
    "CreateContainerConfigError": "something that the pod mounts or reads is missing",
    "Unschedulable": "no node takes the pod: look at its requests, nodeSelector, affinity and tolerations",
    "FailedMount": "something that the pod mounts is missing",
    "FailedCreate": "the pod cannot be made: look at quotas, webhooks and pod security",
}


async def causes(objects: ObjectClient, workload: Plain) -> list[str]:
    """Returns what is known about why a workload is not ready, a line each; none where it cannot be read."""
    try:
        return [line async for line in _causes(objects, workload)]
    except KubeError:
        return []


async def _causes(objects: ObjectClient, workload: Plain) -> Any:
    namespace = workload["metadata"].get("namespace") or ""
    labels = (workload.get("spec") or {}).get("selector", {}).get("matchLabels") or {}
    pods = await objects.list(POD, ",".join(f"{k}={v}" for k, v in sorted(labels.items())), namespace)
    late = [pod for pod in pods if not _is_ready(pod)]
    for pod in late[:_MOST]:
        name = pod["metadata"]["name"]
        for place, reason, message in _states(pod):
            yield f"pod {namespace}/{name}{place}: {': '.join(filter(None, (reason, message)))}"
            if advice := _ADVICE.get(reason):
                yield f"  {advice.format(namespace=namespace, pod=name)}"
        for line in await _events(objects, namespace, name):
            yield f"  {line}"
    if not pods:
        for condition in (workload.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "ReplicaFailure" or condition.get("status") == "False":
                yield f"{condition.get('reason', condition['type'])}: {condition.get('message', '')}"
        for line in await _events(objects, namespace, workload["metadata"]["name"]):
            yield line
        yield f"there is no pod yet: kubectl describe -n {namespace} {workload['kind'].lower()} {workload['metadata']['name']}"


def _is_ready(pod: Plain) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in (pod.get("status") or {}).get("conditions") or ()
    )


def _states(pod: Plain) -> Iterator[tuple[str, str, str]]:
    """Yields what keeps a pod from being ready: where, the reason and a message."""
    status = pod.get("status") or {}
    told = False
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state") or {}
        held = state.get("waiting") or (
            state.get("terminated") if (state.get("terminated") or {}).get("exitCode") else None
        )
        if held and held.get("reason") not in ("PodInitializing", "ContainerCreating"):
            told = True
            yield f", container {container['name']}", str(held.get("reason") or ""), str(held.get("message") or "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            told = True
            yield "", str(condition.get("reason") or ""), str(condition.get("message") or "")
    if not told:
        yield "", str(status.get("phase") or "Pending"), "not ready"


async def _events(objects: ObjectClient, namespace: str, name: str) -> list[str]:
    """Returns the last warnings about an object."""
    events = await objects.list(EVENT, "", namespace, f"involvedObject.name={name}")
    warnings = [event for event in events if event.get("type") != "Normal"]
    warnings.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return [f"{event.get('reason', '')}: {event.get('message', '')}" for event in warnings[-_MOST:]]
