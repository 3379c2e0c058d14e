"""Analysis messages in the status of objects."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.controllers.analysis_status import MAX_MESSAGES, AnalysisStatusController, messages_of
from pilot.ingest.problems import ProblemStore
from pilot.lib.backoff import Backoff
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, until

RULE = GroupKind(NETWORKING, "DestinationRule")
KINDS = (RULE, GroupKind("", "Service"))


def rule(name: str, host: str = "a", **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "generation": 1}
    definition = {
        "apiVersion": f"{NETWORKING}/v1",
        "kind": "DestinationRule",
        "metadata": metadata,
        "spec": {"host": host},
    }
    return {**definition, **({"status": status} if status else {})}


def make_problems(name: str, *codes: str, kind: GroupKind = RULE) -> list[Problem]:
    return [
        Problem(
            code=code, object=ObjectRef(kind, "shop", name), path="spec.host", message="why", severity=Severity.WARNING
        )
        for code in codes
    ]


def message(code: str, name: str) -> dict[str, Any]:
    return {"type": {"code": code, "name": name}, "level": "WARNING", "path": "spec.host", "message": "why"}


class Harness:
    """A leader that writes statuses every few milliseconds."""

    def __init__(self) -> None:
        self.server, self.problems = ApiServer(), ProblemStore(lambda _: None)
        for crd in definitions():
            self.server.put(crd)

    async def start(self) -> None:
        await self.server.start()
        self.client = client_of(self.server)
        self.writer = AnalysisStatusController(
            self.client, self.problems, self.path, lambda: KINDS, 0.005, Backoff(0.001, 0.01), random.Random(1)
        )
        self.task = asyncio.create_task(self.writer.run())

    async def stop(self) -> None:
        await cancel_tasks(self.task)
        await self.client.close()
        await self.server.stop()

    @staticmethod
    def path(ref: ObjectRef) -> str:
        prefix = f"namespaces/{ref.namespace}/" if ref.namespace else ""
        return f"/apis/{NETWORKING}/v1/{prefix}destinationrules/{ref.name}" if ref.kind == RULE else ""

    def status(self, name: str) -> dict[str, Any]:
        stored = self.server.get(NETWORKING, "destinationrules", "shop", name)
        assert stored is not None
        object_status: dict[str, Any] = stored.get("status", {})
        return object_status

    def writes(self) -> int:
        return sum(request.verb == "patch" for request in self.server.requests)


@contextlib.asynccontextmanager
async def run_controller(*objects: dict[str, Any]) -> AsyncIterator[Harness]:
    harness = Harness()
    for definition in objects:
        harness.server.put(definition)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


async def test_problems_are_written_and_removed() -> None:
    async with run_controller(rule("a"), rule("b")) as harness:
        harness.problems.replace(("x", "a"), make_problems("a", "host-unknown", "b-first"))
        await until(lambda: len(harness.status("a").get("validationMessages", ())) == 2)
        expected = [message("b-first", "BFirst"), message("host-unknown", "HostUnknown")]
        assert harness.status("a") == {"validationMessages": expected, "observedGeneration": 1}
        assert harness.status("b") == {}
        harness.problems.replace(("x", "a"), ())
        await until(lambda: "validationMessages" not in harness.status("a"))
        assert harness.writes() == 2


async def test_other_status_fields_stay() -> None:
    async with run_controller(rule("a", addresses=["1.1.1.1"])) as harness:
        harness.problems.replace(("x", "a"), make_problems("a", "host-unknown"))
        await until(lambda: "validationMessages" in harness.status("a"))
        assert harness.status("a")["addresses"] == ["1.1.1.1"]


async def test_stale_messages_of_a_previous_leader_are_removed() -> None:
    messages = [message("host-unknown", "HostUnknown")]
    async with run_controller(
        rule("a", validationMessages=messages, observedGeneration=1),
        rule("b", validationMessages=messages, observedGeneration=1),
    ) as harness:
        harness.problems.replace(("x", "b"), make_problems("b", "host-unknown"))
        await until(lambda: "validationMessages" not in harness.status("a"))
        await until(lambda: harness.status("b") == {"validationMessages": messages, "observedGeneration": 1})


async def test_unchanged_status_is_not_written() -> None:
    messages = [message("host-unknown", "HostUnknown")]
    async with run_controller(rule("a", validationMessages=messages, observedGeneration=1)) as harness:
        harness.problems.replace(("x", "a"), make_problems("a", "host-unknown"))
        await until(lambda: any(request.verb == "get" for request in harness.server.requests))
        for round_ in range(5):
            harness.problems.replace(("x", "other"), make_problems("a", "host-unknown") * (round_ % 2))
            await asyncio.sleep(0.01)
        assert harness.writes() == 0


async def test_edit_updates_the_observed_generation() -> None:
    async with run_controller(rule("a")) as harness:
        harness.problems.replace(("x", "a"), make_problems("a", "host-unknown"))
        await until(lambda: harness.status("a").get("observedGeneration") == 1)
        response = await harness.client.call("GET", harness.path(ObjectRef(RULE, "shop", "a")))
        await harness.client.call(
            "PUT", harness.path(ObjectRef(RULE, "shop", "a")), body=response.replace(b'"host":"a"', b'"host":"b"')
        )
        harness.writer.on_edit([ObjectRef(RULE, "shop", "a"), ObjectRef(RULE, "shop", "b")])
        await until(lambda: harness.status("a").get("observedGeneration") == 2)


async def test_deleted_objects_are_skipped() -> None:
    async with run_controller(rule("b")) as harness:
        harness.problems.replace(("x", "a"), [*make_problems("a", "host-unknown"), *make_problems("b", "host-unknown")])
        await until(lambda: "validationMessages" in harness.status("b"))
        assert harness.writes() == 1


async def test_failed_write_is_retried() -> None:
    async with run_controller(rule("a")) as harness:
        harness.server.faults.refuse(500, times=4, matching=lambda request: request.verb == "patch")
        harness.problems.replace(("x", "a"), make_problems("a", "host-unknown"))
        await until(lambda: "validationMessages" in harness.status("a"))


def test_messages_are_limited_to_istio_kinds_and_a_maximum() -> None:
    assert (
        messages_of([*make_problems("a", "x", kind=GroupKind("", "Service")), Problem(code="x", message="of a file")])
        == {}
    )
    messages = messages_of(make_problems("a", *(f"code-{n}" for n in range(300))))
    assert [len(entries) for entries in messages.values()] == [MAX_MESSAGES]


@pytest.mark.parametrize("order", [1, -1])
def test_messages_are_sorted(order: int) -> None:
    problems = make_problems("a", "b", "a", "c")[::order]
    assert [m["type"]["code"] for m in messages_of(problems)[problems[0].object]] == ["a", "b", "c"]
