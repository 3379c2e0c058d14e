"""What the operator remembers of the objects that it applies, and what it hears of them meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey, RetryPolicy, VersionedKind
from pilot.operator.drift import AppliedObjects

SHARED, OTHER = (ResourceKey(VersionedKind("v1", "ConfigMap"), "istio-system", name) for name in ("shared", "other"))
Plain = dict[str, Any]


def config(version: str = "1") -> Plain:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shared", "namespace": "istio-system", "resourceVersion": version},
    }


class Slow:
    """An API server that knows ConfigMaps and answers when it is told to; and what the objects tell of."""

    def __init__(self, answered_within: float = 60.0) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.told: list[tuple[ResourceKey, Plain | None]] = []
        client: Any = self
        self.objects = AppliedObjects(client, "m", random.Random(1), RetryPolicy(), self.changed, answered_within)

    def changed(self, key: ResourceKey, plain: Plain | None) -> None:
        self.told.append((key, plain))

    async def call(self, method: str, *_: Any) -> bytes:
        if method == "GET":
            return json.dumps({"resources": [{"kind": "ConfigMap", "name": "configmaps", "namespaced": True}]}).encode()
        self.asked.set()
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return json.dumps(config()).encode()


async def test_what_was_applied_is_known_as_it_came_back() -> None:
    server = Slow()
    server.answers.set()
    assert await server.objects.apply(config()) == config()
    assert [
        server.objects.is_unchanged(key, config(version))
        for key, version in ((SHARED, "1"), (SHARED, "2"), (OTHER, "1"))
    ] == [True, False, False]


async def test_a_cancelled_apply_ends_with_the_answer_of_the_server() -> None:
    server = Slow()
    applying = asyncio.create_task(server.objects.apply(config()))
    await server.asked.wait()
    applying.cancel()
    await asyncio.sleep(0)
    assert not applying.done()
    server.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert server.objects.is_unchanged(SHARED, config())


async def test_a_cancelled_apply_that_fails_is_cancelled() -> None:
    server = Slow()
    server.error = KubeError("no")
    applying = asyncio.create_task(server.objects.apply(config()))
    await server.asked.wait()
    applying.cancel()
    server.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert not server.objects.is_unchanged(SHARED, config())


async def test_a_server_that_does_not_answer_a_cancelled_apply_is_not_waited_for_longer() -> None:
    server = Slow(answered_within=0.0)
    applying = asyncio.create_task(server.objects.apply(config()))
    await server.asked.wait()
    applying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert len(asyncio.all_tasks()) == 1


async def test_what_is_heard_of_an_object_while_it_is_applied_is_told_once_all_applications_are_answered() -> None:
    server = Slow()
    assert not server.objects.defer(SHARED, config())
    applying = [asyncio.create_task(server.objects.apply(config())) for _ in range(2)]
    await server.asked.wait()
    await asyncio.sleep(0)
    assert server.objects.defer(SHARED, None)
    assert server.objects.defer(SHARED, config("1"))
    assert not server.objects.defer(OTHER, None)
    assert server.told == []
    server.answers.set()
    await asyncio.gather(*applying)
    assert server.told == [(SHARED, config("1"))]
    assert not server.objects.defer(SHARED, config())
    await server.objects.apply(config())
    assert server.told == [(SHARED, config("1"))]


async def test_what_is_heard_of_an_object_that_is_refused_is_told_too() -> None:
    server = Slow()
    server.error = KubeError("no")
    applying = asyncio.create_task(server.objects.apply(config()))
    await server.asked.wait()
    server.objects.defer(SHARED, None)
    server.answers.set()
    with pytest.raises(KubeError):
        await applying
    assert (server.told, server.objects.fingerprints) == ([(SHARED, None)], {})
