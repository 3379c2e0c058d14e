"""Applied objects: their fingerprints, and events during an apply."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from typing import Any

import pytest

from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey, RetryPolicy, VersionedKind
from pilot.operator.drift import AppliedObjects, fingerprint

SHARED, OTHER = (ResourceKey(VersionedKind("v1", "ConfigMap"), "istio-system", name) for name in ("shared", "other"))
Plain = dict[str, Any]


def config(version: str = "1") -> Plain:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shared", "namespace": "istio-system", "resourceVersion": version},
    }


class SlowServer:
    """An API server for ConfigMaps that answers on demand. `events` are the deferred events of the applied objects."""

    def __init__(self, answered_within: float = 60.0) -> None:
        self.requested, self.answers = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.events: list[tuple[ResourceKey, Plain | None]] = []
        client: Any = self
        self.objects = AppliedObjects(client, "m", random.Random(1), RetryPolicy(), self.changed, answered_within)

    def changed(self, key: ResourceKey, plain: Plain | None) -> None:
        self.events.append((key, plain))

    async def call(self, method: str, *_: Any, **__: Any) -> bytes:
        if method == "GET":
            return json.dumps({"resources": [{"kind": "ConfigMap", "name": "configmaps", "namespaced": True}]}).encode()
        self.requested.set()
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return json.dumps(config()).encode()


async def test_applied_object_is_unchanged() -> None:
    server = SlowServer()
    server.answers.set()
    assert await server.objects.apply(config()) == config()
    assert [
        server.objects.is_unchanged(key, config(version))
        for key, version in ((SHARED, "1"), (SHARED, "2"), (OTHER, "1"))
    ] == [True, False, False]


async def test_cancelled_apply_ends_with_the_response() -> None:
    server = SlowServer()
    apply_task = asyncio.create_task(server.objects.apply(config()))
    await server.requested.wait()
    apply_task.cancel()
    await asyncio.sleep(0)
    assert not apply_task.done()
    server.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await apply_task
    assert server.objects.is_unchanged(SHARED, config())


async def test_cancelled_apply_that_fails_is_cancelled() -> None:
    server = SlowServer()
    server.error = KubeError("no")
    apply_task = asyncio.create_task(server.objects.apply(config()))
    await server.requested.wait()
    apply_task.cancel()
    server.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await apply_task
    assert not server.objects.is_unchanged(SHARED, config())


async def test_cancelled_apply_times_out() -> None:
    server = SlowServer(answered_within=0.0)
    apply_task = asyncio.create_task(server.objects.apply(config()))
    await server.requested.wait()
    apply_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await apply_task
    assert len(asyncio.all_tasks()) == 1


async def test_events_during_an_apply_are_deferred_to_the_last_response() -> None:
    server = SlowServer()
    assert not server.objects.defer(SHARED, config())
    apply_task = [asyncio.create_task(server.objects.apply(config())) for _ in range(2)]
    await server.requested.wait()
    await asyncio.sleep(0)
    assert server.objects.defer(SHARED, None)
    assert server.objects.defer(SHARED, config("1"))
    assert not server.objects.defer(OTHER, None)
    assert server.events == []
    server.answers.set()
    await asyncio.gather(*apply_task)
    assert server.events == [(SHARED, config("1"))]
    assert not server.objects.defer(SHARED, config())
    await server.objects.apply(config())
    assert server.events == [(SHARED, config("1"))]


async def test_events_during_a_rejected_apply_are_reported() -> None:
    server = SlowServer()
    server.error = KubeError("no")
    apply_task = asyncio.create_task(server.objects.apply(config()))
    await server.requested.wait()
    server.objects.defer(SHARED, None)
    server.answers.set()
    with pytest.raises(KubeError):
        await apply_task
    assert (server.events, server.objects.fingerprints) == ([(SHARED, None)], {})


# -- fingerprints ----------------------------------------------------------------------------------------------------------

ANNOTATIONS = {"deployment.kubernetes.io/revision": "1", "c": "d"}
SPECIFIED: Plain = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {"replicas": 2},
    "status": {"observedGeneration": 4, "updatedReplicas": 2, "readyReplicas": 2},
    "metadata": {
        "name": "istiod",
        "generation": 4,
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "annotations": ANNOTATIONS,
    },
}


def with_value(plain: Plain, path: str, value: Any) -> Plain:
    result = copy.deepcopy(plain)
    *parents, last = path.split(".")
    inner = result
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return result


@pytest.mark.parametrize(
    ("path", "value", "is_relevant"),
    [
        ("metadata.resourceVersion", "8", False),
        ("metadata.generation", 5, True),
        ("metadata.labels", {"a": "c"}, True),
        ("metadata.labels", None, True),
        ("metadata.annotations", {**ANNOTATIONS, "deployment.kubernetes.io/revision": "2"}, False),
        ("metadata.annotations", {"c": "e"}, True),
        ("metadata.annotations", None, True),
        ("status.readyReplicas", 1, False),
        ("status.conditions", [1], False),
    ],
)
def test_fingerprint_of_a_deployment(path: str, value: Any, is_relevant: bool) -> None:
    assert (fingerprint(with_value(SPECIFIED, path, value)) != fingerprint(SPECIFIED)) is is_relevant


def test_fingerprint_by_resource_version() -> None:
    versions = {"metadata": {"name": "a", "resourceVersion": "7"}}
    assert fingerprint({**versions, "kind": "ConfigMap"}) == "7"
    numbered = {"metadata": {"name": "a", "resourceVersion": "7", "generation": 1}}
    assert [fingerprint({**numbered, "kind": kind}) for kind in ("Service", "ServiceAccount")] == ["7", "7"]
    assert fingerprint({**numbered, "kind": "Gateway", "status": {"readyReplicas": 1}}) == (1, None, {})
