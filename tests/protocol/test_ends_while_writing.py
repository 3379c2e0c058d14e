"""Streams that end while something is being written to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from grpc import aio

from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.xds import ads
from pilot.xds.admission import StreamLimits
from pilot.xds.ads import EOF, SERVICE
from pilot.xds.net.tcp_connections import TcpConnections
from pilot.xds.push.write_limiter import WriteLimits
from testing.clients.ads import NODE, Server


class Call:
    """A call whose peer asks for clusters, and then for what `then` returns once an answer is being written.

    `abort` fails while a message is being written, as gRPC's does.
    """

    def __init__(self, then: Callable[[], Any]) -> None:
        self.then, self.read_so_far = then, 0
        self.writing, self.may_write, self.written = asyncio.Event(), asyncio.Event(), 0
        self.status: tuple[Any, str] | None = None

    def peer(self) -> str:
        return "ipv4:10.0.0.1:99"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def cancelled(self) -> bool:
        return False

    async def read(self) -> Any:
        self.read_so_far += 1
        if self.read_so_far == 1:
            return asked("cds", NODE)
        if self.read_so_far == 2:
            await self.writing.wait()
            return self.then()
        return await asyncio.Event().wait()

    async def write(self, _: bytes) -> None:
        self.writing.set()
        await self.may_write.wait()
        self.writing.clear()
        self.written += 1

    async def abort(self, code: Any, details: str) -> None:
        if self.writing.is_set():
            raise aio.InternalError("TOO_MANY_OPERATIONS")
        self.status = code, details


class Details:
    method, invocation_metadata = f"/{SERVICE}/DeltaAggregatedResources", ()


def asked(kind: str, node_id: str = "") -> bytes:
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=BY_SHORT_NAME.get(kind, kind))
    request.node.id = node_id
    return request.SerializeToString()


def broken() -> bytes:
    raise ZeroDivisionError("a bug")


REFUSED: dict[str, tuple[Callable[[], Any], tuple[Any, str]]] = {
    "too many types": (
        lambda: asked("made-up"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "more than 1 types on one stream"),
    ),
    "no request": (lambda: b"\xff", (grpc.StatusCode.INVALID_ARGUMENT, "malformed request")),
    "no objects": (
        lambda: asked("networking.istio.io/v1/Gateway"),
        (grpc.StatusCode.UNAUTHENTICATED, "configuration objects require an identity in the control plane's namespace"),
    ),
    "a bug of ours": (broken, (grpc.StatusCode.INTERNAL, "internal error")),
}


def serve(server: Server, call: Call) -> asyncio.Task[None]:
    server.set("cds", a="1")
    return asyncio.create_task(server.ads.handlers().service(Details).stream_stream(None, call))


@pytest.mark.parametrize("why", REFUSED)
async def test_a_stream_is_refused_once_what_is_being_written_is_written(why: str) -> None:
    then, status = REFUSED[why]
    server, call = Server(stream_limits=StreamLimits(types=1)), Call(then)
    stream = serve(server, call)
    await call.writing.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (call.read_so_far, stream.done(), call.status) == (2, False, None)
    call.may_write.set()
    await stream
    assert (call.status, call.written) == (status, 1)
    assert not server.discovery.connections()
    assert server.metric("pilot_total_xds_internal_errors 1") is (why == "a bug of ours")


async def test_a_stream_that_is_cancelled_after_its_last_request_leaves_nothing_behind() -> None:
    """gRPC says so of a peer that cancels its call: that there is no more to read, and then that the call is over."""
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
    assert (call.written, len(server.discovery.connections())) == (0, 0)
    server.discovery.sweep()
    assert len(server.db) == 0


async def test_a_stream_that_ends_while_it_waits_for_its_turn_is_written_nothing_more() -> None:
    server, first, second = Server(WriteLimits(moving=10, small=0)), Call(lambda: EOF), Call(lambda: EOF)
    streams = [serve(server, call) for call in (first, second)]
    await first.writing.wait()
    await server.eventually(lambda: server.pusher.write_limiter.waiting)
    second.writing.set()  # so that its reading ends
    for _ in range(10):
        await asyncio.sleep(0)
    first.may_write.set()
    second.may_write.set()
    await asyncio.gather(*streams)
    assert (first.written, second.written) == (1, 0)


async def test_a_refused_stream_that_takes_nothing_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    was_reset = list[str]()
    monkeypatch.setattr(ads, "LAST_WRITE_TIMEOUT", 0.01)
    monkeypatch.setattr(TcpConnections, "reset_soon", lambda _, address: was_reset.append(address))
    server, call = Server(stream_limits=StreamLimits(types=1)), Call(lambda: asked("made-up"))
    with pytest.raises(asyncio.CancelledError):
        await serve(server, call)
    assert (was_reset, call.status) == (["10.0.0.1:99"], None)
    assert not server.discovery.connections()
