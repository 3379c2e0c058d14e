"""Dispatch of object changes to the IstioOperators that share an object."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.install.installer import WaitOptions
from pilot.kube.informer import WatchOptions
from pilot.kube.list_watch import NamespacedName
from pilot.kube.object_client import ResourceKey, VersionedKind
from pilot.operator.drift import fingerprint
from pilot.operator.istio_operator_controller import IstioOperatorController
from pilot.operator.operator_metrics import OperatorMetrics

CONFIG = VersionedKind("v1", "ConfigMap")
SHARED, OWN = ResourceKey(CONFIG, "istio-system", "shared"), ResourceKey(CONFIG, "istio-system", "own")
OWNER, OWNER_NAMESPACE = (
    "install.operator.istio.io/owning-resource",
    "install.operator.istio.io/owning-resource-namespace",
)


class FakeReconciler:
    """A reconciler that records the changes of its objects."""

    def __init__(self, *desired: ResourceKey) -> None:
        self.desired, self.drifted, self.unready = frozenset(desired), list[ResourceKey](), list[tuple[str, str]]()

    def mark_drifted(self, key: ResourceKey) -> None:
        self.drifted.append(key)

    def update_readiness(self, key: ResourceKey, missing: str) -> None:
        self.unready.append((key.name, missing))


class SharedController:
    """A controller with three IstioOperators, two of them with the same name."""

    def __init__(self) -> None:
        client: Any = None
        self.controller = IstioOperatorController(
            client, None, "", WaitOptions(), WatchOptions(), random.Random(1), OperatorMetrics()
        )
        self.workers = {
            NamespacedName("a", "mesh"): FakeReconciler(SHARED, OWN),
            NamespacedName("b", "mesh"): FakeReconciler(SHARED),
            NamespacedName("a", "none"): FakeReconciler(),
        }
        workers: Any = self.workers
        self.controller._reconcilers = workers

    def drifted(self) -> dict[str, list[str]]:
        return {
            f"{name.namespace}/{name.name}": [key.name for key in worker.drifted]
            for name, worker in self.workers.items()
            if worker.drifted
        }


def config(**labels: str) -> dict[str, Any]:
    metadata = {"name": "shared", "namespace": "istio-system", "resourceVersion": "1", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


BOTH = {"a/mesh": ["shared"], "b/mesh": ["shared"]}


@pytest.mark.parametrize(
    ("plain", "drifted"),
    [
        (None, BOTH),
        (config(), BOTH),
        ({**config(), "metadata": {"resourceVersion": "1"}}, BOTH),
        (config(**{OWNER: "mesh", OWNER_NAMESPACE: "b"}), {"b/mesh": ["shared"]}),
        (config(**{OWNER: "mesh", OWNER_NAMESPACE: "a"}), {"a/mesh": ["shared"]}),
        (config(**{OWNER: "none", OWNER_NAMESPACE: "a"}), BOTH),
        (config(**{OWNER: "deleted", OWNER_NAMESPACE: "a"}), BOTH),
        (config(**{OWNER: "mesh"}), BOTH),
        (config(**{OWNER_NAMESPACE: "a"}), BOTH),
    ],
)
def test_changed_object_is_dispatched_to_its_owner_or_all(
    plain: dict[str, Any] | None, drifted: dict[str, list[str]]
) -> None:
    shared = SharedController()
    shared.controller._object_changed(SHARED, plain)
    assert shared.drifted() == drifted


def test_unchanged_object_is_ignored_and_deleted_one_is_forgotten() -> None:
    shared = SharedController()
    shared.controller.objects.fingerprints |= {SHARED: fingerprint(config()), OWN: "1"}
    shared.controller._object_changed(SHARED, config())
    assert shared.drifted() == {}
    shared.controller._object_changed(SHARED, None)
    assert (shared.drifted(), shared.controller.objects.fingerprints) == (BOTH, {OWN: "1"})


def test_status_change_only_updates_readiness() -> None:
    shared = SharedController()
    key = ResourceKey(VersionedKind("apps/v1", "Deployment"), "istio-system", "istiod")
    plain: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "istiod", "generation": 1, "labels": {}},
    }
    for name in (NamespacedName("a", "mesh"), NamespacedName("b", "mesh")):
        shared.workers[name].desired |= {key}
    shared.controller.objects.fingerprints[key] = fingerprint(plain)
    definition: dict[str, Any] = {**plain, "kind": "CustomResourceDefinition"}
    shared.controller._object_changed(key, definition)
    for ready in (0, 1):
        shared.controller._object_changed(
            key, {**plain, "status": {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": ready}}
        )
    assert shared.drifted() == {}
    assert [worker.unready for worker in shared.workers.values()] == [
        [("istiod", "0 of 1 pods ready"), ("istiod", "")]
    ] * 2 + [[]]


def test_shared_objects_are_transferred() -> None:
    shared = SharedController()
    istio_operator = ResourceKey(VersionedKind("install.istio.io/v1alpha1", "IstioOperator"), "b", "mesh")
    assert shared.controller._desired_by_others(istio_operator) == {SHARED, OWN}
    assert shared.controller._desired_by_others(istio_operator._replace(namespace="a")) == {SHARED}
    shared.controller._transfer([SHARED, OWN], istio_operator._replace(namespace="a"))
    assert shared.drifted() == {"b/mesh": ["shared"]}
