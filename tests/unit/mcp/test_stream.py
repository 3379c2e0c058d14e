"""What is sent over a stream that asks for configuration objects, and what is told of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format
from grpc import aio

from pilot.lib.backoff import Backoff
from pilot.mcp.stream import NACK_LENGTH, McpClient, McpEndpoint, McpStream

TYPES = ("a/v1/A", "b/v1/B")


class Call:
    """A stream of a server that gives some answers and ends."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.sent: list[dict[str, Any]] = []

    def stream_stream(self, method: str, serialize: Any, parse: Any) -> Any:
        assert method == "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        return lambda: self

    async def write(self, request: Any) -> None:
        self.sent.append(json_format.MessageToDict(request))

    async def read(self) -> Any:
        return self._answers.pop(0) if self._answers else aio.EOF  # type: ignore[attr-defined]

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return "restarting"


class Asker(McpStream):
    """A stream to `call`; `told` is what is told of it, `wrong` what it says of all that it receives."""

    def __init__(self, call: Call, revision: str = "") -> None:
        self.call, self.told, self.wrong, self.received = call, list[str](), list[str](), list[Any]()
        client = McpClient("id", "istio-system", revision)
        super().__init__(
            McpEndpoint("host:1", self.nothing),
            client,
            TYPES,
            self.receive,
            self.told.append,
            Backoff(),
            random.Random(1),
        )

    async def nothing(self) -> None:
        return None

    async def receive(self, type_url: str, resources: Sequence[tuple[str, bytes]]) -> Sequence[str]:
        self.received.append((type_url, list(resources)))
        return self.wrong

    @contextlib.asynccontextmanager
    async def _channel(self, credentials: Any) -> AsyncIterator[Call]:  # type: ignore[override]
        yield self.call


def answer(version: str, nonce: str, *resources: bytes) -> Any:
    made = discovery_pb2.DiscoveryResponse(type_url=TYPES[0], version_info=version, nonce=nonce)
    for value in resources:
        made.resources.add(type_url="t", value=value)
    return made


def node(**more: str) -> dict[str, Any]:
    return {"id": "id", "metadata": {"GENERATOR": "api", "NAMESPACE": "istio-system", **more}}


@pytest.mark.parametrize(("revision", "more"), [("", {}), ("canary", {"ISTIO_REVISION": "canary"})])
async def test_the_first_request_alone_says_who_asks(revision: str, more: dict[str, str]) -> None:
    asker = Asker(Call(), revision)
    assert await asker._subscribe() == "UNAVAILABLE restarting"
    assert asker.call.sent == [{"typeUrl": TYPES[0], "node": node(**more)}, {"typeUrl": TYPES[1]}]
    assert asker.told == []


async def test_answers_are_acknowledged_with_their_version_and_refused_with_that_of_before() -> None:
    asker = Asker(Call(answer("1", "x", b"one", b"two")))
    await asker._subscribe()
    assert asker.call.sent[2:] == [{"typeUrl": TYPES[0], "versionInfo": "1", "responseNonce": "x"}]
    assert (asker.told, asker.received) == ([""], [(TYPES[0], [("t", b"one"), ("t", b"two")])])
    asker.wrong = ["a is wrong", "b too"]
    refused = await asker._process(answer("2", "y"))
    assert json_format.MessageToDict(refused) == {
        "typeUrl": TYPES[0],
        "versionInfo": "1",
        "responseNonce": "y",
        "errorDetail": {"code": 3, "message": "a is wrong; b too"},
    }
    asker.wrong = ["x" * (NACK_LENGTH + 5)]
    assert (await asker._process(answer("2", "z"))).error_detail.message == "x" * NACK_LENGTH + "… (5 more characters)"


async def test_a_new_stream_knows_no_versions_and_an_answer_ends_the_waiting() -> None:
    asker = Asker(Call(answer("1", "x")))
    asker._attempts.next_delay()
    await asker._subscribe()
    assert asker._attempts.failures == 0
    asker.call, asker.wrong = Call(answer("2", "y")), ["no"]
    await asker._subscribe()
    assert asker.call.sent[2]["errorDetail"] == {"code": 3, "message": "no"}
    assert "versionInfo" not in asker.call.sent[2]
