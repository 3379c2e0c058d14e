"""Streams that end during a write."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2
from grpc import aio

from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.xds import ads
from pilot.xds.admission import StreamLimits
from pilot.xds.ads import EOF, SERVICE
from pilot.xds.debug_requests import DebugAnswer, DebugRequestError
from pilot.xds.net.tcp_connections import TcpConnections
from pilot.xds.push.write_limiter import WriteLimits
from testing.clients.ads import NODE, SECONDS, Client, Server, serving


class Call:
    """A gRPC call whose second request comes from `next_request`, during the write of the first response.

    `abort` fails during a write, like that of gRPC.
    """

    def __init__(self, next_request: Callable[[], Any]) -> None:
        self.next_request, self.reads = next_request, 0
        self.writing, self.may_write, self.writes = asyncio.Event(), asyncio.Event(), 0
        self.status: tuple[Any, str] | None = None

    def peer(self) -> str:
        return "ipv4:10.0.0.1:99"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def cancelled(self) -> bool:
        return False

    async def read(self) -> Any:
        self.reads += 1
        if self.reads == 1:
            return encode_request("cds", NODE)
        if self.reads == 2:
            await self.writing.wait()
            return self.next_request()
        return await asyncio.Event().wait()

    async def write(self, _: bytes) -> None:
        self.writing.set()
        await self.may_write.wait()
        self.writing.clear()
        self.writes += 1

    async def abort(self, code: Any, details: str) -> None:
        if self.writing.is_set():
            raise aio.InternalError("TOO_MANY_OPERATIONS")
        self.status = code, details


class Details:
    method, invocation_metadata = f"/{SERVICE}/DeltaAggregatedResources", ()


def encode_request(kind: str, node_id: str = "") -> bytes:
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=BY_SHORT_NAME.get(kind, kind))
    request.node.id = node_id
    return request.SerializeToString()


def fail() -> bytes:
    raise ZeroDivisionError("a bug")


REFUSALS: dict[str, tuple[Callable[[], Any], tuple[Any, str]]] = {
    "too many types": (
        lambda: encode_request("made-up"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "the stream subscribes to more than 1 types (PILOT_XDS_MAX_TYPES)"),
    ),
    "malformed request": (lambda: b"\xff", (grpc.StatusCode.INVALID_ARGUMENT, "malformed request")),
    "no identity": (
        lambda: encode_request("networking.istio.io/v1/Gateway"),
        (grpc.StatusCode.UNAUTHENTICATED, "configuration objects require an identity in the control plane's namespace"),
    ),
    "internal error": (fail, (grpc.StatusCode.INTERNAL, "internal error")),
}


def serve(server: Server, call: Call) -> asyncio.Task[None]:
    server.set("cds", a="1")
    return asyncio.create_task(server.ads.handlers().service(Details).stream_stream(None, call))


@pytest.mark.parametrize("reason", REFUSALS)
async def test_refused_stream_ends_after_the_current_write(reason: str) -> None:
    next_request, status = REFUSALS[reason]
    server, call = Server(stream_limits=StreamLimits(types=1)), Call(next_request)
    stream = serve(server, call)
    await call.writing.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (call.reads, stream.done(), call.status) == (2, False, None)
    call.may_write.set()
    await stream
    assert (call.status, call.writes) == (status, 1)
    assert not server.discovery.connections()
    assert server.metric("pilot_total_xds_internal_errors 1") is (reason == "internal error")


async def test_cancelled_stream_leaves_nothing_behind() -> None:
    """gRPC reports a cancelled call as the end of the requests, then as a cancellation."""
    server, call = Server(), Call(lambda: EOF)
    before = asyncio.all_tasks()
    stream = serve(server, call)
    await call.writing.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    call.may_write.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert (call.writes, len(server.discovery.connections())) == (0, 0)
    server.discovery.sweep()
    assert len(server.db) == 0


async def test_stream_that_ends_while_waiting_gets_no_response() -> None:
    server, first, second = Server(WriteLimits(moving=10, small=0)), Call(lambda: EOF), Call(lambda: EOF)
    streams = [serve(server, call) for call in (first, second)]
    await first.writing.wait()
    await server.eventually(lambda: server.pusher.write_limiter.waiting)
    second.writing.set()  # ends its requests
    for _ in range(10):
        await asyncio.sleep(0)
    first.may_write.set()
    second.may_write.set()
    await asyncio.gather(*streams)
    assert (first.writes, second.writes) == (1, 0)


async def test_refused_stream_that_does_not_read_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    resets = list[str]()
    monkeypatch.setattr(ads, "LAST_WRITE_TIMEOUT", 0.01)
    monkeypatch.setattr(TcpConnections, "reset_soon", lambda _, address: resets.append(address))
    server, call = Server(stream_limits=StreamLimits(types=1)), Call(lambda: encode_request("made-up"))
    with pytest.raises(asyncio.CancelledError):
        await serve(server, call)
    assert (resets, call.status) == (["10.0.0.1:99"], None)
    assert not server.discovery.connections()


async def test_abort_cancels_the_writer_and_end_does_not() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    for abort in (True, False):
        reader, writer = asyncio.create_task(wait_forever()), asyncio.create_task(wait_forever())
        stream_end = ads._StreamEnd(reader, writer)
        await asyncio.sleep(0)
        (stream_end.abort if abort else stream_end.end)()
        await asyncio.sleep(0)
        assert (reader.cancelled(), writer.cancelled(), stream_end.is_requested) == (True, abort, True)
        writer.cancel()
        assert await stream_end.wait_for_writer() is False


@pytest.mark.parametrize("type_url", ["istio.io/debug/syncz", "networking.istio.io/v1/Gateway"])
@pytest.mark.parametrize("variant", ["delta", "sotw"])
async def test_denied_request_ends_its_stream_with_the_reason(
    type_url: str, variant: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = DebugRequestError(grpc.StatusCode.PERMISSION_DENIED, "not for you")

    def check(identity: str) -> None:
        raise error

    @contextlib.asynccontextmanager
    async def ask(type_url: str, names: Any, identity: str) -> Any:
        raise error
        yield

    async with (
        serving(answer_debug_request=ask, check_object_access=check) as server,
        Client(server, variant) as client,
    ):
        await client.request(type_url)
        assert await client.end_status() == (grpc.StatusCode.PERMISSION_DENIED, "not for you")
    [record] = [record for record in caplog.records if "denied" in record.getMessage()]
    assert (record.levelno, record.name) == (logging.WARNING, "pilot.ads")
    assert record.getMessage().startswith(f"ADS: denied {type_url} to pod.ns-")


@pytest.mark.parametrize("variant", ["delta", "sotw"])
async def test_stream_that_reads_no_debug_answers_holds_one(variant: str) -> None:
    """The next answer is built when the previous one has been written. A stream that makes no progress is closed."""
    built, held = 0, 0

    @contextlib.asynccontextmanager
    async def answer(type_url: str, names: Any, identity: str) -> AsyncIterator[DebugAnswer]:
        nonlocal built, held
        built, held = built + 1, held + 1
        try:
            yield DebugAnswer([("page", any_pb2.Any(type_url=type_url, value=bytes(4 << 20)))])
        finally:
            held -= 1

    limits = WriteLimits(timeout=2.0)
    async with serving(limits=limits, answer_debug_request=answer) as server, Client(server, variant) as client:
        for _ in range(60):
            await client.request("istio.io/debug", "page")
        await server.eventually(lambda: built and not server.discovery.connections())
        assert (built, held) == (1, 0)


async def test_streams_that_clients_end_before_their_turn_to_be_written_end() -> None:
    async with serving() as server:
        server.set("cds", a="1")
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(server.ads._delta(None, HalfClosedCall()) for _ in range(500)))
        assert not server.discovery.connections()


class HalfClosedCall:
    """A gRPC call whose client sends one request, and ends its side after a few turns of the event loop."""

    def __init__(self) -> None:
        self._requests = [encode_request("cds", NODE)]

    def peer(self) -> str:
        return "ipv4:10.0.0.1:99"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def cancelled(self) -> bool:
        return False

    def code(self) -> None:
        return None

    async def read(self) -> Any:
        if self._requests:
            return self._requests.pop()
        for _ in range(5):
            await asyncio.sleep(0)
        return EOF

    async def write(self, _: bytes) -> None:
        await asyncio.sleep(0)
