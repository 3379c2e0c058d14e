"""What is wrong with objects is in their status, and nowhere else is anything written."""

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
    made = {"apiVersion": f"{NETWORKING}/v1", "kind": "DestinationRule", "metadata": metadata, "spec": {"host": host}}
    return {**made, **({"status": status} if status else {})}


def wrong(name: str, *codes: str, kind: GroupKind = RULE) -> list[Problem]:
    return [
        Problem(
            code=code, object=ObjectRef(kind, "shop", name), path="spec.host", message="why", severity=Severity.WARNING
        )
        for code in codes
    ]


def message(code: str, name: str) -> dict[str, Any]:
    return {"type": {"code": code, "name": name}, "level": "WARNING", "path": "spec.host", "message": "why"}


class Writing:
    """A leader that writes statuses every few milliseconds."""

    def __init__(self) -> None:
        self.server, self.problems = ApiServer(), ProblemStore(lambda _: None)
        for plain in definitions():
            self.server.put(plain)

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
        place = f"namespaces/{ref.namespace}/" if ref.namespace else ""
        return f"/apis/{NETWORKING}/v1/{place}destinationrules/{ref.name}" if ref.kind == RULE else ""

    def status(self, name: str) -> dict[str, Any]:
        plain = self.server.get(NETWORKING, "destinationrules", "shop", name)
        assert plain is not None
        found: dict[str, Any] = plain.get("status", {})
        return found

    def writes(self) -> int:
        return sum(asked.verb == "patch" for asked in self.server.requests)


@contextlib.asynccontextmanager
async def writing(*objects: dict[str, Any]) -> AsyncIterator[Writing]:
    it = Writing()
    for plain in objects:
        it.server.put(plain)
    await it.start()
    try:
        yield it
    finally:
        await it.stop()


async def test_problems_come_and_go_in_the_status() -> None:
    async with writing(rule("a"), rule("b")) as it:
        it.problems.replace(("x", "a"), wrong("a", "host-unknown", "b-first"))
        await until(lambda: len(it.status("a").get("validationMessages", ())) == 2)
        expected = [message("b-first", "BFirst"), message("host-unknown", "HostUnknown")]
        assert it.status("a") == {"validationMessages": expected, "observedGeneration": 1}
        assert it.status("b") == {}
        it.problems.replace(("x", "a"), ())
        await until(lambda: "validationMessages" not in it.status("a"))
        assert it.writes() == 2


async def test_the_rest_of_a_status_stays() -> None:
    async with writing(rule("a", addresses=["1.1.1.1"])) as it:
        it.problems.replace(("x", "a"), wrong("a", "host-unknown"))
        await until(lambda: "validationMessages" in it.status("a"))
        assert it.status("a")["addresses"] == ["1.1.1.1"]


async def test_what_a_leader_of_before_has_left_is_taken_away() -> None:
    there = [message("host-unknown", "HostUnknown")]
    async with writing(
        rule("a", validationMessages=there, observedGeneration=1),
        rule("b", validationMessages=there, observedGeneration=1),
    ) as it:
        it.problems.replace(("x", "b"), wrong("b", "host-unknown"))
        await until(lambda: "validationMessages" not in it.status("a"))
        await until(lambda: it.status("b") == {"validationMessages": there, "observedGeneration": 1})


async def test_nothing_is_written_that_is_there_already() -> None:
    there = [message("host-unknown", "HostUnknown")]
    async with writing(rule("a", validationMessages=there, observedGeneration=1)) as it:
        it.problems.replace(("x", "a"), wrong("a", "host-unknown"))
        await until(lambda: any(asked.verb == "get" for asked in it.server.requests))
        for round_ in range(5):
            it.problems.replace(("x", "other"), wrong("a", "host-unknown") * (round_ % 2))
            await asyncio.sleep(0.01)
        assert it.writes() == 0


async def test_another_specification_is_another_generation() -> None:
    async with writing(rule("a")) as it:
        it.problems.replace(("x", "a"), wrong("a", "host-unknown"))
        await until(lambda: it.status("a").get("observedGeneration") == 1)
        answer = await it.client.call("GET", it.path(ObjectRef(RULE, "shop", "a")))
        await it.client.call(
            "PUT", it.path(ObjectRef(RULE, "shop", "a")), body=answer.replace(b'"host":"a"', b'"host":"b"')
        )
        it.writer.on_edit([ObjectRef(RULE, "shop", "a"), ObjectRef(RULE, "shop", "b")])
        await until(lambda: it.status("a").get("observedGeneration") == 2)


async def test_objects_that_are_gone_are_left_alone() -> None:
    async with writing(rule("b")) as it:
        it.problems.replace(("x", "a"), [*wrong("a", "host-unknown"), *wrong("b", "host-unknown")])
        await until(lambda: "validationMessages" in it.status("b"))
        assert it.writes() == 1


async def test_a_server_that_refuses_is_asked_again() -> None:
    async with writing(rule("a")) as it:
        it.server.faults.refuse(500, times=4, matching=lambda asked: asked.verb == "patch")
        it.problems.replace(("x", "a"), wrong("a", "host-unknown"))
        await until(lambda: "validationMessages" in it.status("a"))


def test_only_objects_of_our_kinds_have_messages_and_not_more_than_fit() -> None:
    assert messages_of([*wrong("a", "x", kind=GroupKind("", "Service")), Problem(code="x", message="of a file")]) == {}
    found = messages_of(wrong("a", *(f"code-{n}" for n in range(300))))
    assert [len(listed) for listed in found.values()] == [MAX_MESSAGES]


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_problems_does_not_matter(order: int) -> None:
    problems = wrong("a", "b", "a", "c")[::order]
    assert [m["type"]["code"] for m in messages_of(problems)[problems[0].object]] == ["a", "b", "c"]
