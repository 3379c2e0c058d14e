"""Requests and states of an MCP stream, tested against a scripted server."""

from __future__ import annotations

import asyncio
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
SHORT_BACKOFF = Backoff(0.001, 0.001)
Plain = dict[str, Any]


class ScriptedServer:
    """Sends each stream the next list of responses, then ends it with UNAVAILABLE. `requests` holds those of each stream."""

    def __init__(self, *streams: Sequence[Any]) -> None:
        self._streams = list(streams)
        self.requests: list[list[Plain]] = []

    async def serve(self, _: Any, context: Any) -> None:
        requests = list[Plain]()
        self.requests.append(requests)
        responses = self._streams.pop(0) if self._streams else ()
        for _ in TYPES:
            requests.append(json_format.MessageToDict(await context.read()))
        for response in responses:
            await context.write(response)
            requests.append(json_format.MessageToDict(await context.read()))
        if not self._streams:
            await asyncio.Event().wait()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")


class Receiver:
    """Records the resources and states of a stream. `errors` are the results of successive calls, then none."""

    def __init__(self, *errors: list[str]) -> None:
        self.states, self.received = list[str](), list[Any]()
        self._errors = list(errors)

    async def receive(self, type_url: str, resources: Sequence[tuple[str, bytes]]) -> Sequence[str]:
        self.received.append((type_url, list(resources)))
        return self._errors.pop(0) if self._errors else []


@contextlib.asynccontextmanager
async def streaming(
    server: ScriptedServer, receiver: Receiver, revision: str = "", backoff: Backoff = SHORT_BACKOFF
) -> AsyncIterator[None]:
    """Run a stream until the block ends."""
    grpc_server = aio.server()
    method = grpc.stream_stream_rpc_method_handler(
        server.serve,
        discovery_pb2.DiscoveryRequest.FromString,
        discovery_pb2.DiscoveryResponse.SerializeToString,
    )
    service = "envoy.service.discovery.v3.AggregatedDiscoveryService"
    handler = grpc.method_handlers_generic_handler(service, {"StreamAggregatedResources": method})
    grpc_server.add_generic_rpc_handlers((handler,))
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()

    async def plaintext() -> None:
        return None

    stream = McpStream(
        McpEndpoint(f"127.0.0.1:{port}", plaintext),
        McpClient("id", "istio-system", revision),
        TYPES,
        receiver.receive,
        receiver.states.append,
        backoff,
        random.Random(1),
    )
    await stream.start()
    try:
        yield
    finally:
        await stream.stop()
        await grpc_server.stop(None)


async def until(check: Any) -> None:
    async with asyncio.timeout(5):
        while not check():
            await asyncio.sleep(0.002)


def response(version: str, nonce: str, *resources: bytes) -> Any:
    message = discovery_pb2.DiscoveryResponse(type_url=TYPES[0], version_info=version, nonce=nonce)
    for value in resources:
        message.resources.add(type_url="t", value=value)
    return message


def node(**more: str) -> Plain:
    return {"id": "id", "metadata": {"GENERATOR": "api", "NAMESPACE": "istio-system", **more}}


@pytest.mark.parametrize(("revision", "more"), [("", {}), ("canary", {"ISTIO_REVISION": "canary"})])
async def test_only_the_first_request_has_the_node(revision: str, more: dict[str, str]) -> None:
    server, receiver = ScriptedServer([], []), Receiver()
    async with streaming(server, receiver, revision):
        await until(lambda: len(server.requests) == 2 and len(server.requests[1]) == 2)
    assert server.requests[0] == [{"typeUrl": TYPES[0], "node": node(**more)}, {"typeUrl": TYPES[1]}]
    assert receiver.states == ["UNAVAILABLE restarting"]


async def test_ack_and_nack_versions() -> None:
    first, second, third = response("1", "x", b"one", b"two"), response("2", "y"), response("3", "z")
    server = ScriptedServer([first, second, third])
    receiver = Receiver([], ["a is wrong", "b too"], ["x" * (NACK_LENGTH + 5)])
    async with streaming(server, receiver):
        await until(lambda: server.requests and len(server.requests[0]) == 5)
    assert receiver.received[0] == (TYPES[0], [("t", b"one"), ("t", b"two")])
    assert receiver.states[0] == ""
    [ack, nack, long_nack] = server.requests[0][2:]
    assert ack == {"typeUrl": TYPES[0], "versionInfo": "1", "responseNonce": "x"}
    assert nack == {
        "typeUrl": TYPES[0],
        "versionInfo": "1",
        "responseNonce": "y",
        "errorDetail": {"code": 3, "message": "a is wrong; b too"},
    }
    assert long_nack["errorDetail"]["message"] == "x" * NACK_LENGTH + "… (5 more characters)"


async def test_new_stream_has_no_versions() -> None:
    server, receiver = ScriptedServer([response("1", "x")], [response("2", "y")]), Receiver([], ["no"])
    async with streaming(server, receiver):
        await until(lambda: len(server.requests) == 2 and len(server.requests[1]) == 3)
    nack = server.requests[1][2]
    assert nack["errorDetail"] == {"code": 3, "message": "no"}
    assert "versionInfo" not in nack


async def test_response_resets_the_backoff() -> None:
    streams = [[response(str(number), "x")] for number in range(10)]
    server = ScriptedServer(*streams)
    async with streaming(server, Receiver(), backoff=Backoff(0.02, 60.0)):
        await until(lambda: len(server.requests) == len(streams))
