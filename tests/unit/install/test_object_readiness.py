"""Readiness of installed objects."""

from __future__ import annotations

import pytest

from pilot.install.object_readiness import unready_reason
from tests.unit.install.labelled_cluster import Plain

WORKLOAD: Plain = {"metadata": {"generation": 2}, "spec": {"replicas": 3}}


@pytest.mark.parametrize(
    ("kind", "plain", "missing"),
    [
        ("CustomResourceDefinition", {}, "not established"),
        (
            "CustomResourceDefinition",
            {"status": {"conditions": [{"type": "Established", "status": "False"}]}},
            "not established",
        ),
        (
            "CustomResourceDefinition",
            {"status": {"conditions": [{"type": "NamesAccepted", "status": "True"}]}},
            "not established",
        ),
        ("CustomResourceDefinition", {"status": {"conditions": [{"type": "Established", "status": "True"}]}}, ""),
        ("Namespace", {"metadata": {}}, ""),
        ("Namespace", {"metadata": {}, "status": {"phase": "Active"}}, ""),
        ("Namespace", {"metadata": {}, "status": {"phase": "Terminating"}}, "being deleted"),
        (
            "Namespace",
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}},
            "being deleted",
        ),
        ("ConfigMap", {"metadata": {"generation": 5}}, ""),
        ("Deployment", WORKLOAD, "not observed by its controller yet"),
        (
            "Deployment",
            {**WORKLOAD, "status": {"observedGeneration": 1, "updatedReplicas": 3, "readyReplicas": 3}},
            "not observed by its controller yet",
        ),
        ("Deployment", {**WORKLOAD, "status": {"observedGeneration": 2, "updatedReplicas": 3, "readyReplicas": 3}}, ""),
        (
            "Deployment",
            {**WORKLOAD, "status": {"observedGeneration": 3, "updatedReplicas": 2, "readyReplicas": 3}},
            "2 of 3 pods ready",
        ),
        ("StatefulSet", {**WORKLOAD, "status": {"observedGeneration": 2, "updatedReplicas": 3}}, "0 of 3 pods ready"),
        ("Deployment", {"metadata": {}}, "0 of 1 pods ready"),
        ("Deployment", {"metadata": {}, "spec": {"replicas": 0}}, ""),
        ("Deployment", {"metadata": {}, "spec": {}, "status": {"updatedReplicas": 1, "readyReplicas": 1}}, ""),
        (
            "DaemonSet",
            {"metadata": {}, "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 1}},
            "1 of 2 pods ready",
        ),
        (
            "DaemonSet",
            {"metadata": {}, "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2}},
            "",
        ),
        ("DaemonSet", {"metadata": {}}, ""),
    ],
)
def test_unready_reason(kind: str, plain: Plain, missing: str) -> None:
    assert unready_reason({"kind": kind, **plain}) == missing
