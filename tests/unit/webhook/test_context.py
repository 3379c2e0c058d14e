"""What the webhook's path, a pod's namespace and its owner come to."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.inject.containers import find_anywhere, with_container
from webhook.inject.openshift import proxy_ids
from webhook.inject.owner import WorkloadOwner, owner_of
from webhook.server.path import environment_of


@pytest.mark.parametrize(
    ("path", "variables"),
    [
        ("", {}),
        ("/inject", {}),
        ("/inject/", {}),
        ("/inject/cluster", {}),
        ("/inject/cluster/east", {"ISTIO_META_CLUSTER_ID": "east"}),
        ("/inject/cluster/east/net/n1/", {"ISTIO_META_CLUSTER_ID": "east", "ISTIO_META_NETWORK": "n1"}),
        ("/inject/key/a--slash--b/other/c/odd", {"KEY": "a/b", "OTHER": "c"}),
        ("/inject//x/key/v", {"KEY": "v"}),
        ("/inject/:ENV:cluster=a:ENV:A=b=c:ENV:=x:ENV:C=:ENV:D", {"ISTIO_META_CLUSTER_ID": "a", "A": "b=c", "C": ""}),
    ],
)
def test_the_path_says_variables(path: str, variables: dict[str, str]) -> None:
    assert environment_of(path) == variables


USERS, GROUPS = "openshift.io/sa.scc.uid-range", "openshift.io/sa.scc.supplemental-groups"


@pytest.mark.parametrize(
    ("annotations", "ids"),
    [
        ({}, (1337, 1337)),
        ({USERS: "1000/10"}, (1009, 1009)),
        ({USERS: "1000-1019"}, (1019, 1019)),
        ({USERS: "1000/10", GROUPS: "2000/5,3000/9"}, (1009, 2004)),
        ({USERS: "none", GROUPS: "2000-2003"}, (1337, 2003)),
        ({GROUPS: "x,2000/5"}, (1337, 1337)),
    ],
)
def test_proxies_run_as_the_last_of_a_namespace_s_users(annotations: dict[str, str], ids: tuple[int, int]) -> None:
    assert proxy_ids(annotations) == ids


def owner(kind: str, name: str, **labels: str) -> dict[str, Any]:
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
    ("pod", "found"),
    [
        ({}, ("Pod", "v1", "", "")),
        ({"metadata": {"name": "own", "namespace": "n"}}, ("Pod", "v1", "own", "n")),
        ({"metadata": {"generateName": "a-", "name": "own"}}, ("Pod", "v1", "own", "")),
        ({"metadata": {**owner("ReplicaSet", "web-1")["metadata"], "generateName": ""}}, ("Pod", "v1", "own", "n")),
        (owner("ReplicaSet", "web-5d4", pod_template_hash="5d4"), ("Deployment", "v", "web", "n")),
        (owner("ReplicaSet", "web-5d4", pod_template_hash="6e5"), ("ReplicaSet", "v", "web-5d4", "n")),
        (owner("ReplicaSet", "web-5d4", rollouts_pod_template_hash="5d4"), ("Rollout", "v1alpha1", "web", "n")),
        (owner("ReplicaSet", "web"), ("ReplicaSet", "v", "web", "n")),
        (owner("StatefulSet", "web-5d4", pod_template_hash="5d4"), ("StatefulSet", "v", "web-5d4", "n")),
        (owner("ReplicationController", "web-1", deploymentconfig="web"), ("DeploymentConfig", "v", "web", "n")),
        (owner("ReplicationController", "web-1"), ("ReplicationController", "v", "web-1", "n")),
        (owner("ReplicaSet", "web-1", deploymentconfig="web"), ("ReplicaSet", "v", "web-1", "n")),
        (owner("Job", "nightly-27345678"), ("CronJob", "batch/v1", "nightly", "n")),
        (owner("Job", "nightly-1234567"), ("Job", "v", "nightly-1234567", "n")),
        (owner("StatefulSet", "nightly-27345678"), ("StatefulSet", "v", "nightly-27345678", "n")),
        (owner("StatefulSet", ""), ("StatefulSet", "v", "own", "n")),
        (
            {"metadata": {"generateName": "a-", "name": "own", "ownerReferences": [{"controller": True}]}},
            ("", "", "own", ""),
        ),
    ],
)
def test_the_workload_of_a_pod(pod: dict[str, Any], found: tuple[str, str, str, str]) -> None:
    assert owner_of(pod) == WorkloadOwner(*found)


def test_a_container_is_found_and_replaced_wherever_it_is() -> None:
    main, init = {"name": "app", "image": "1"}, {"name": "istio-proxy", "image": "2"}
    pod: dict[str, Any] = {"spec": {"containers": [main, {"name": "b"}], "initContainers": [{"name": "c"}, init]}}
    assert [find_anywhere(pod, name) for name in ("app", "istio-proxy", "none")] == [main, init, None]
    changed = [with_container(pod, {"name": name, "image": "3"})["spec"] for name in ("app", "istio-proxy")]
    assert changed == [
        {"containers": [{"name": "app", "image": "3"}, {"name": "b"}], "initContainers": [{"name": "c"}, init]},
        {"containers": [main, {"name": "b"}], "initContainers": [{"name": "c"}, {"name": "istio-proxy", "image": "3"}]},
    ]
