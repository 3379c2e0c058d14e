"""Diagnosis of workloads that do not become ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilot.install.diagnosis import EVENT, POD, diagnose
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import VersionedKind
from tests.unit.install.labelled_cluster import LabelledCluster, Plain, make_object


def make_event(name: str, reason: str, message: str, kind: str = "Warning") -> Plain:
    plain = make_object(EVENT, f"{name}.{reason}", "edge")
    return {**plain, "involvedObject": {"name": name}, "type": kind, "reason": reason, "message": message}


UNREADY: Plain = {
    "kind": "Deployment",
    "metadata": {"name": "ingress", "namespace": "edge"},
    "spec": {"selector": {"matchLabels": {"b": "2", "a": "1"}}},
}


async def test_pods_are_selected_by_workload_labels() -> None:
    cluster = LabelledCluster()
    assert await diagnose(cluster, UNREADY) == [
        "no pods have been created; for details, run kubectl describe -n edge deployment ingress"
    ]  # type: ignore[arg-type]
    assert cluster.queries[0] == ("Pod", "a=1,b=2", "edge")


async def test_diagnosis_without_pods_has_the_failed_conditions() -> None:
    conditions = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"},
        {"type": "Progressing", "status": "True", "reason": "New"},
        {"type": "Available", "status": "False"},
    ]
    assert await diagnose(LabelledCluster(), {**UNREADY, "status": {"conditions": conditions}}) == [  # type: ignore[arg-type]
        "FailedCreate: quota",
        "Available: ",
        "no pods have been created; for details, run kubectl describe -n edge deployment ingress",
    ]


async def test_diagnosis_of_three_unready_pods_with_three_warnings() -> None:
    def unready_pod(name: str, **status: Any) -> Plain:
        plain = make_object(POD, name, "edge")
        return {**plain, "metadata": {**plain["metadata"], "labels": {"a": "1", "b": "2"}}, "status": status}

    events = [{**make_event("i-0", f"r{n}", f"m{n}"), "lastTimestamp": f"2026-01-01T00:00:0{n}Z"} for n in (4, 1, 3, 2)]
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "name": "istio-proxy"}
    failed = {"state": {"terminated": {"reason": "Error", "exitCode": 1}}, "name": "istio-init"}
    running = [
        {"name": "a", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
        {"name": "b", "state": {"running": {}}},
        {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]
    pods = [
        unready_pod("ready", conditions=[{"type": "Ready", "status": "True"}]),
        unready_pod(
            "i-0",
            conditions=[
                {"type": "Ready", "status": "False"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ],
        ),
        unready_pod("i-1", initContainerStatuses=[failed], containerStatuses=[waiting]),
        unready_pod("i-2", phase="Running", containerStatuses=running),
        unready_pod("i-3"),
    ]
    advice = "check that the image exists and that nodes can pull it: hub, tag and values.global.imagePullSecrets"
    assert await diagnose(LabelledCluster(*pods, *events, make_event("i-0", "Pulled", "fine", "Normal")), UNREADY) == [  # type: ignore[arg-type]
        "pod edge/i-0: Unschedulable",
        "  no node fits the pod: check its resource requests, nodeSelector, affinity and tolerations",
        "  r2: m2",
        "  r3: m3",
        "  r4: m4",
        "pod edge/i-1, container istio-init: Error",
        "pod edge/i-1, container istio-proxy: ErrImagePull: no such image",
        f"  {advice}",
        "pod edge/i-2: Running: not ready",
    ]


async def test_diagnosis_without_permissions_is_empty() -> None:
    class Closed(LabelledCluster):
        async def list(
            self, kind: VersionedKind, selector: str = "", namespace: str = "", fields: str = ""
        ) -> Sequence[Plain]:
            raise KubeError("forbidden")

    assert await diagnose(Closed(), UNREADY) == []  # type: ignore[arg-type]
