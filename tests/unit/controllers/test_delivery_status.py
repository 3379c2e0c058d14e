"""The condition about the delivery of objects."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.controllers.delivery_status import (
    MOST,
    DeliveryCount,
    DeliveryStatusController,
    count_other_replicas,
    plain_condition,
)
from pilot.lib.backoff import Backoff
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, until

RULE = GroupKind(NETWORKING, "DestinationRule")
KINDS = (RULE, GroupKind("", "Service"))


def rule(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{NETWORKING}/v1",
        "kind": "DestinationRule",
        "metadata": {"name": name, "namespace": "shop", "generation": 1},
        "spec": {"host": "a"},
        **({"status": {"conditions": list(conditions)}} if conditions else {}),
    }


def reconciled(status: str, generation: int = 1) -> dict[str, Any]:
    return {"type": "Reconciled", "status": status, "observedGeneration": generation, "lastTransitionTime": "before"}


def ref(name: str) -> ObjectRef:
    return ObjectRef(RULE, "shop", name)


class Harness:
    """A leader that checks deliveries every few milliseconds."""

    def __init__(self) -> None:
        self.server, self.others = ApiServer(), 0
        self.counts: dict[str, DeliveryCount] = {}
        self.asked: list[str] = []
        for crd in definitions():
            self.server.put(crd)

    async def start(self) -> None:
        await self.server.start()
        self.client = client_of(self.server)
        self.writer = DeliveryStatusController(
            self.client,
            self._count,
            self._count_others,
            self._path,
            lambda: KINDS,
            Backoff(0.001, 0.01),
            random.Random(1),
            0.005,
        )
        self.task = asyncio.create_task(self.writer.run())

    async def stop(self) -> None:
        await cancel_tasks(self.task)
        await self.client.close()
        await self.server.stop()

    async def _count(self, of: ObjectRef) -> DeliveryCount | None:
        self.asked.append(of.name)
        return self.counts.get(of.name)

    async def _count_others(self) -> int:
        return self.others

    @staticmethod
    def _path(of: ObjectRef) -> str:
        return f"/apis/{NETWORKING}/v1/namespaces/shop/destinationrules/{of.name}" if of.kind == RULE else ""

    def conditions(self, name: str) -> list[dict[str, Any]]:
        stored = self.server.get(NETWORKING, "destinationrules", "shop", name)
        assert stored is not None
        conditions: list[dict[str, Any]] = stored.get("status", {}).get("conditions", [])
        return conditions

    def told(self, name: str) -> tuple[str, str] | None:
        """Return the status and the message of the condition."""
        return next(((c["status"], c.get("message", "")) for c in self.conditions(name)), None)

    def writes(self) -> int:
        return sum(request.verb == "patch" for request in self.server.requests)


@contextlib.asynccontextmanager
async def run_controller(*objects: dict[str, Any], **counts: DeliveryCount) -> AsyncIterator[Harness]:
    harness = Harness()
    harness.counts = counts
    for definition in objects:
        harness.server.put(definition)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


async def test_condition_follows_the_delivery_and_is_then_left_alone() -> None:
    async with run_controller(rule("a"), a=DeliveryCount(1, 100, 40, 0)) as harness:
        await until(lambda: harness.told("a") == ("False", "40/100 proxies up to date"))
        count = len(harness.asked)
        await until(lambda: len(harness.asked) > count + 3)
        assert harness.writes() == 1, "an equal condition is not written again"
        harness.counts["a"] = DeliveryCount(1, 100, 100, 0)
        await until(lambda: harness.told("a") == ("True", "100/100 proxies up to date"))
        count = len(harness.asked)
        await asyncio.sleep(0.03)
        assert (harness.writes(), len(harness.asked)) == (2, count)
        (condition,) = harness.conditions("a")
        assert (condition["observedGeneration"], condition["reason"]) == (1, "Delivered")


async def test_object_without_proxies_is_written_once_per_generation() -> None:
    async with run_controller(rule("a"), a=DeliveryCount(1, 0, 0, 0)) as harness:
        await until(lambda: harness.told("a") == ("True", "0/0 proxies up to date"))
        harness.writer.on_edit([ref("a")])
        await until(lambda: len(harness.asked) == 2)
        await asyncio.sleep(0.02)
        assert harness.writes() == 1


async def test_new_leader_writes_only_what_is_missing() -> None:
    objects = (
        rule("current", reconciled("True")),
        rule("stale", reconciled("True", 7)),
        rule("pending", reconciled("False")),
    )
    counts = {name: DeliveryCount(1, 2, 2, 0) for name in ("current", "stale", "pending")}
    async with run_controller(*objects, **counts) as harness:
        await until(lambda: {harness.told("stale"), harness.told("pending")} == {("True", "2/2 proxies up to date")})
        assert sorted(harness.asked) == ["pending", "stale"]
        assert harness.conditions("current") == [reconciled("True")]


async def test_conditions_of_others_and_the_transition_time_stay() -> None:
    other = {"type": "Other", "status": "True"}
    async with run_controller(rule("a", other, reconciled("False")), a=DeliveryCount(1, 2, 1, 0)) as harness:
        await until(lambda: len(harness.conditions("a")) == 2 and "message" in harness.conditions("a")[1])
        assert harness.conditions("a")[0] == other
        assert harness.conditions("a")[1]["lastTransitionTime"] == "before"


async def test_version_that_was_not_counted_is_not_judged() -> None:
    async with run_controller(rule("a"), a=DeliveryCount(2, 1, 1, 0)) as harness:
        await until(lambda: any(request.verb == "get" for request in harness.server.requests))
        await asyncio.sleep(0.02)
        assert harness.conditions("a") == []


async def test_failed_write_is_retried() -> None:
    async with run_controller(rule("a"), a=DeliveryCount(1, 1, 1, 0)) as harness:
        harness.server.faults.refuse(500, times=4, matching=lambda request: request.verb == "patch")
        await until(lambda: harness.told("a") is not None)


async def test_checks_are_limited_and_every_object_has_its_turn() -> None:
    names = [f"r{number:02}" for number in range(MOST + 5)]
    counts = {name: DeliveryCount(1, 2, 1, 0) for name in names}
    async with run_controller(*map(rule, names), **counts) as harness:
        await until(lambda: len(harness.asked) >= 2 * MOST)
        assert harness.asked[: len(names)] == names
        assert harness.asked[len(names) : 2 * MOST] == names[: 2 * MOST - len(names)]


@pytest.mark.parametrize(
    ("count", "others", "status", "message"),
    [
        (DeliveryCount(1, 3, 2, 1), 0, "False", "2/3 proxies up to date, 1 rejected it"),
        (DeliveryCount(1, 3, 2, 0), 1, "False", "2/3 proxies up to date"),
        (
            DeliveryCount(1, 3, 3, 0),
            2,
            "Unknown",
            "3/3 proxies up to date at one replica; 2 more have proxies that are not counted",
        ),
    ],
)
def test_condition_is_true_only_if_it_is_known(count: DeliveryCount, others: int, status: str, message: str) -> None:
    condition = plain_condition(count, others)
    assert (condition["status"], condition["message"]) == (status, message)


async def test_other_replicas_are_running_pods_of_the_revision() -> None:
    server = ApiServer()
    for name, revision, phase in (
        ("istiod-1", "blue", "Running"),
        ("istiod-2", "blue", "Running"),
        ("istiod-3", "blue", "Pending"),
        ("istiod-4", "green", "Running"),
    ):
        labels = {"app": "istiod", "istio.io/rev": revision}
        metadata = {"name": name, "namespace": "mesh", "labels": labels}
        server.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": phase}})
    await server.start()
    client = client_of(server)
    try:
        assert await count_other_replicas(client, "mesh", "blue", "istiod-1") == 1
    finally:
        await client.close()
        await server.stop()


async def test_condition_is_no_longer_unknown_once_the_other_replicas_have_ended() -> None:
    async with run_controller(rule("a"), a=DeliveryCount(1, 100, 60, 0)) as harness:
        harness.others = 1
        await until(lambda: harness.told("a") == ("False", "60/100 proxies up to date"))
        harness.counts["a"] = DeliveryCount(1, 100, 100, 0)
        await until(lambda: (harness.told("a") or ("",))[0] == "Unknown")
        harness.others = 0
        await until(lambda: harness.told("a") == ("True", "100/100 proxies up to date"))
