"""Which IstioOperators are told of a change of an object that several of them want."""

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


class Wanting:
    """A worker that wants some objects and notes what it is told."""

    def __init__(self, *wanted: ResourceKey) -> None:
        self.desired, self.told, self.lacking = frozenset(wanted), list[ResourceKey](), list[tuple[str, str]]()

    def mark_drifted(self, key: ResourceKey) -> None:
        self.told.append(key)

    def update_readiness(self, key: ResourceKey, missing: str) -> None:
        self.lacking.append((key.name, missing))


class Three:
    """A controller with three IstioOperators, of which two have one name."""

    def __init__(self) -> None:
        client: Any = None
        self.controller = IstioOperatorController(
            client, None, "", WaitOptions(), WatchOptions(), random.Random(1), OperatorMetrics()
        )
        self.workers = {
            NamespacedName("a", "mesh"): Wanting(SHARED, OWN),
            NamespacedName("b", "mesh"): Wanting(SHARED),
            NamespacedName("a", "none"): Wanting(),
        }
        workers: Any = self.workers
        self.controller._reconcilers = workers

    def told(self) -> dict[str, list[str]]:
        return {
            f"{name.namespace}/{name.name}": [key.name for key in worker.told]
            for name, worker in self.workers.items()
            if worker.told
        }


def config(**labels: str) -> dict[str, Any]:
    named = {"name": "shared", "namespace": "istio-system", "resourceVersion": "1", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named}


BOTH = {"a/mesh": ["shared"], "b/mesh": ["shared"]}


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        (None, BOTH),
        (config(), BOTH),
        ({**config(), "metadata": {"resourceVersion": "1"}}, BOTH),
        (config(**{OWNER: "mesh", OWNER_NAMESPACE: "b"}), {"b/mesh": ["shared"]}),
        (config(**{OWNER: "mesh", OWNER_NAMESPACE: "a"}), {"a/mesh": ["shared"]}),
        (config(**{OWNER: "none", OWNER_NAMESPACE: "a"}), BOTH),
        (config(**{OWNER: "gone", OWNER_NAMESPACE: "a"}), BOTH),
        (config(**{OWNER: "mesh"}), BOTH),
        (config(**{OWNER_NAMESPACE: "a"}), BOTH),
    ],
)
def test_the_owner_of_a_changed_object_is_told_or_all_that_want_it(
    plain: dict[str, Any] | None, told: dict[str, list[str]]
) -> None:
    three = Three()
    three.controller._object_changed(SHARED, plain)
    assert three.told() == told


def test_an_object_that_is_as_it_was_applied_is_no_news_and_one_that_is_gone_is_not_known_any_more() -> None:
    three = Three()
    three.controller.objects.fingerprints |= {SHARED: fingerprint(config()), OWN: "1"}
    three.controller._object_changed(SHARED, config())
    assert three.told() == {}
    three.controller._object_changed(SHARED, None)
    assert (three.told(), three.controller.objects.fingerprints) == (BOTH, {OWN: "1"})


def test_where_the_status_alone_of_a_workload_changed_all_that_want_it_are_told_what_it_lacks() -> None:
    three = Three()
    key = ResourceKey(VersionedKind("apps/v1", "Deployment"), "istio-system", "istiod")
    plain: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "istiod", "generation": 1, "labels": {}},
    }
    for name in (NamespacedName("a", "mesh"), NamespacedName("b", "mesh")):
        three.workers[name].desired |= {key}
    three.controller.objects.fingerprints[key] = fingerprint(plain)
    definition: dict[str, Any] = {**plain, "kind": "CustomResourceDefinition"}
    three.controller._object_changed(key, definition)
    for ready in (0, 1):
        three.controller._object_changed(
            key, {**plain, "status": {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": ready}}
        )
    assert three.told() == {}
    assert [worker.lacking for worker in three.workers.values()] == [
        [("istiod", "0 of 1 pods ready"), ("istiod", "")]
    ] * 2 + [[]]


def test_what_others_want_is_kept_and_handed_over_to_them() -> None:
    three = Three()
    of = ResourceKey(VersionedKind("install.istio.io/v1alpha1", "IstioOperator"), "b", "mesh")
    assert three.controller._desired_by_others(of) == {SHARED, OWN}
    assert three.controller._desired_by_others(of._replace(namespace="a")) == {SHARED}
    three.controller._transfer([SHARED, OWN], of._replace(namespace="a"))
    assert three.told() == {"b/mesh": ["shared"]}
