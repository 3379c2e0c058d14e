"""Tests of the owner of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.inject.owner import WorkloadOwner, owner_of


def owned_pod(kind: str, name: str, **labels: str) -> dict[str, Any]:
    references = [
        {"kind": "Other", "name": "other"},
        {"kind": kind, "apiVersion": "v", "name": name, "controller": True},
    ]
    labels = {key.replace("_", "-"): value for key, value in labels.items()}
    return {
        "metadata": {
            "generateName": "a-",
            "name": "own",
            "namespace": "n",
            "labels": labels,
            "ownerReferences": references,
        }
    }


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, ("Pod", "v1", "", "")),
        ({"metadata": {"name": "own", "namespace": "n"}}, ("Pod", "v1", "own", "n")),
        ({"metadata": {"generateName": "a-", "name": "own"}}, ("Pod", "v1", "own", "")),
        ({"metadata": {**owned_pod("ReplicaSet", "web-1")["metadata"], "generateName": ""}}, ("Pod", "v1", "own", "n")),
        (owned_pod("ReplicaSet", "web-5d4", pod_template_hash="5d4"), ("Deployment", "v", "web", "n")),
        (owned_pod("ReplicaSet", "web-5d4", pod_template_hash="6e5"), ("ReplicaSet", "v", "web-5d4", "n")),
        (owned_pod("ReplicaSet", "web-5d4", rollouts_pod_template_hash="5d4"), ("Rollout", "v1alpha1", "web", "n")),
        (owned_pod("ReplicaSet", "web"), ("ReplicaSet", "v", "web", "n")),
        (owned_pod("StatefulSet", "web-5d4", pod_template_hash="5d4"), ("StatefulSet", "v", "web-5d4", "n")),
        (owned_pod("ReplicationController", "web-1", deploymentconfig="web"), ("DeploymentConfig", "v", "web", "n")),
        (owned_pod("ReplicationController", "web-1"), ("ReplicationController", "v", "web-1", "n")),
        (owned_pod("ReplicaSet", "web-1", deploymentconfig="web"), ("ReplicaSet", "v", "web-1", "n")),
        (owned_pod("Job", "nightly-27345678"), ("CronJob", "batch/v1", "nightly", "n")),
        (owned_pod("Job", "nightly-1234567"), ("Job", "v", "nightly-1234567", "n")),
        (owned_pod("StatefulSet", "nightly-27345678"), ("StatefulSet", "v", "nightly-27345678", "n")),
        (owned_pod("StatefulSet", ""), ("StatefulSet", "v", "own", "n")),
        (
            {"metadata": {"generateName": "a-", "name": "own", "ownerReferences": [{"controller": True}]}},
            ("", "", "own", ""),
        ),
    ],
)
def test_owner_of_a_pod(pod: dict[str, Any], expected: tuple[str, str, str, str]) -> None:
    assert owner_of(pod) == WorkloadOwner(*expected)
