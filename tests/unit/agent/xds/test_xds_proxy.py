"""ADS proxying between Envoy on a socket and a control plane behind TLS."""

from __future__ import annotations

import asyncio
import collections
import datetime
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2
from grpc import aio

from pilot.agent.unix_sockets import EOF, build_server, serve
from pilot.agent.upstream_server import UpstreamServer
from pilot.agent.wasm.extension_stream import Outcome
from pilot.agent.xds.agent_subscriptions import AgentSubscriptions
from pilot.agent.xds.xds_proxy import XdsProxy
from pilot.lib.xds_types import EXTENSION
from testing.control_planes.secure_port import ADS, METHODS, NAME, SecurePort, until
from testing.security import certificates

SOTW, DELTA = METHODS
IDENTITY = "spiffe://cluster.local/ns/shop/sa/web"
CLUSTER, NAMES = "type.googleapis.com/envoy.config.cluster.v3.Cluster", "type.googleapis.com/names"


class Counts:
    """Counts proxy events."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def request_forwarded(self) -> None:
        self.counts["requests"] += 1

    def response_received(self) -> None:
        self.counts["responses"] += 1

    def upstream_connection_failed(self) -> None:
        self.counts["failed"] += 1

    def upstream_closed(self, by: str) -> None:
        self.counts[f"ended {by}"] += 1

    def envoy_closed(self, by: str) -> None:
        self.counts[f"envoy {by}"] += 1


class Plane:
    """A control plane that records requests and writes what a test puts into `outbox`. None ends the stream."""

    def __init__(self) -> None:
        self.received, self.outbox, self.streams = list[bytes](), asyncio.Queue[bytes | None](), 0
        self.ended = asyncio.Event()

    async def serve(self, context: Any) -> None:
        self.streams += 1
        reading = asyncio.create_task(self._read(context))
        try:
            while (raw := await self.outbox.get()) is not None:
                await context.write(raw)
        finally:
            reading.cancel()
            self.ended.set()

    async def _read(self, context: Any) -> None:
        while (message := await context.read()) is not EOF:
            self.received.append(message)


class ProxyStack:
    """Envoy's end of the socket, the agent, and the control plane."""

    def __init__(self, folder: pathlib.Path, resources: list[list[bytes]]) -> None:
        self.plane, self.counts, self._folder = Plane(), Counts(), folder
        self.front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)), self.plane.serve)
        self.subscriptions = AgentSubscriptions({NAMES: self._receive})
        self.resources = resources

    def _receive(self, resources: list[bytes]) -> None:
        if resources == [b"bad"]:
            raise ValueError("no table")
        self.resources.append(resources)

    async def start(self, has_subscriptions: bool) -> None:
        await self.front.start()
        (self._folder / "token").write_text(IDENTITY)
        token, root = str(self._folder / "token"), str(self.front.write_root(self._folder))
        self.upstream = UpstreamServer(self.front.address, root, NAME, token, "west", None, {"X-Mine": "1"})
        self.server = build_server()
        self.server.add_generic_rpc_handlers(
            (
                XdsProxy(
                    self.upstream, self.subscriptions if has_subscriptions else AgentSubscriptions({}), self.counts
                ).handlers(),
            )
        )
        await serve(self.server, str(self._folder / "XDS"), private=False)
        channel: Any = aio.insecure_channel(f"unix:{self._folder / 'XDS'}", [("grpc.max_receive_message_length", -1)])
        self.channel = channel

    def call(self, method: str = DELTA) -> Any:
        return self.channel.stream_stream(f"/{ADS}/{method}")()

    async def stop(self) -> None:
        await self.channel.close()
        await self.server.stop(None)
        await self.front.stop()


@pytest.fixture(params=[False, True], ids=["plain", "with agent subscriptions"])
async def proxy_stack(request: Any, tmp_path: pathlib.Path) -> AsyncIterator[ProxyStack]:
    stack = ProxyStack(tmp_path, [])
    await stack.start(request.param)
    yield stack
    await stack.stop()


@pytest.fixture
async def subscribed(tmp_path: pathlib.Path) -> AsyncIterator[ProxyStack]:
    stack = ProxyStack(tmp_path, [])
    await stack.start(True)
    yield stack
    await stack.stop()


def response(type_url: str, method: str = DELTA, nonce: str = "1", *bodies: bytes) -> bytes:
    if method == DELTA:
        message: Any = discovery_pb2.DeltaDiscoveryResponse(type_url=type_url, nonce=nonce)
        for body in bodies:
            message.resources.add().resource.value = body
    else:
        message = discovery_pb2.DiscoveryResponse(type_url=type_url, nonce=nonce, version_info="v")
        for body in bodies:
            message.resources.add().value = body
    raw: bytes = message.SerializeToString()
    return raw


@pytest.mark.parametrize("method", METHODS)
async def test_messages_pass_unchanged(proxy_stack: ProxyStack, method: str) -> None:
    call = proxy_stack.call(method)
    unknown = b"\xba\x3e\x03new"  # an unknown field
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER).SerializeToString() + unknown
    await call.write(request)
    await until(lambda: request in proxy_stack.plane.received)
    reply = response(CLUSTER, method, "1", b"x" * 3_000_000) + unknown
    await proxy_stack.plane.outbox.put(reply)
    assert await call.read() == reply
    call.cancel()


async def test_nacks_reach_the_control_plane(proxy_stack: ProxyStack) -> None:
    call = proxy_stack.call()
    detail = status_pb2.Status(code=13, message="no such filter")
    nack = discovery_pb2.DeltaDiscoveryRequest(
        type_url=CLUSTER, response_nonce="1", error_detail=detail
    ).SerializeToString()
    await call.write(nack)
    await until(lambda: nack in proxy_stack.plane.received)
    call.cancel()


async def test_control_plane_receives_token_and_cluster(proxy_stack: ProxyStack) -> None:
    call = proxy_stack.call()
    await call.write(b"")
    headers = (await until(lambda: proxy_stack.front.metadata))[0]
    assert headers["authorization"] == f"Bearer {IDENTITY}"
    assert (headers["clusterid"], headers["x-mine"]) == ("west", "1")
    call.cancel()


async def test_envoy_closing_the_stream_closes_the_upstream(proxy_stack: ProxyStack) -> None:
    call = proxy_stack.call()
    await call.write(b"")
    await until(lambda: proxy_stack.plane.received)
    call.cancel()
    await asyncio.wait_for(proxy_stack.plane.ended.wait(), 20)


async def test_envoy_can_reconnect_after_the_control_plane_ends_a_stream(proxy_stack: ProxyStack) -> None:
    for number in (1, 2):
        call = proxy_stack.call()
        await call.write(b"")
        await until(lambda number=number: proxy_stack.plane.streams == number)
        await proxy_stack.plane.outbox.put(None)
        assert await call.read() is EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_upstream_rejection_reaches_envoy(proxy_stack: ProxyStack) -> None:
    async def refuse(context: Any) -> None:
        await context.read()
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "authorization failed")

    proxy_stack.front.stream = refuse
    call = proxy_stack.call()
    await call.write(b"")
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.PERMISSION_DENIED, "authorization failed")


async def test_unreachable_control_plane_is_unavailable_and_counted(proxy_stack: ProxyStack) -> None:
    await proxy_stack.front.stop()
    call = proxy_stack.call()
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert proxy_stack.counts.counts["failed"] == 1


async def test_missing_token_is_reported_to_envoy(proxy_stack: ProxyStack, tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").unlink()
    call = proxy_stack.call()
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert "no token in" in (raised.value.details() or "")


@pytest.mark.parametrize("method", METHODS)
async def test_agent_subscriptions_share_the_stream(subscribed: ProxyStack, method: str) -> None:
    proxy_stack, message = (
        subscribed,
        discovery_pb2.DeltaDiscoveryRequest if method == DELTA else discovery_pb2.DiscoveryRequest,
    )
    call = proxy_stack.call(method)
    await call.write(b"first")
    await until(lambda: len(proxy_stack.plane.received) == 2)
    assert proxy_stack.plane.received[0] == b"first"
    assert message.FromString(proxy_stack.plane.received[1]) == message(type_url=NAMES)
    await proxy_stack.plane.outbox.put(response(NAMES, method, "7", b"a", b"b"))
    await until(lambda: len(proxy_stack.plane.received) == 3)
    ack = message.FromString(proxy_stack.plane.received[2])
    assert (ack.type_url, ack.response_nonce, ack.HasField("error_detail")) == (NAMES, "7", False)
    assert proxy_stack.resources == [[b"a", b"b"]]
    await proxy_stack.plane.outbox.put(response(NAMES, method, "8", b"bad"))
    await until(lambda: len(proxy_stack.plane.received) == 4)
    assert message.FromString(proxy_stack.plane.received[3]).error_detail.message == "no table"
    await proxy_stack.plane.outbox.put(response(CLUSTER, method))
    assert await call.read() == response(CLUSTER, method)
    call.cancel()


class NoRewrite:
    """Leaves resources unchanged."""

    def rewrite(self, packed: Any) -> Outcome:
        return "unchanged"


class SlowEnvoy:
    """A call from Envoy that accepts writes only when `may_write` is set, and no status meanwhile."""

    def __init__(self) -> None:
        self.may_write, self.writing, self.writes = asyncio.Event(), asyncio.Event(), list[bytes]()
        self.status: tuple[Any, ...] = ()

    async def read(self) -> Any:
        return await asyncio.Event().wait()

    async def write(self, raw: bytes) -> None:
        self.writing.set()
        await self.may_write.wait()
        self.writing.clear()
        self.writes.append(raw)

    async def abort(self, *status: Any) -> None:
        assert not self.writing.is_set()
        self.status = status


@pytest.mark.parametrize("is_rejected", [True, False])
async def test_stream_ends_after_the_pending_write(proxy_stack: ProxyStack, is_rejected: bool) -> None:
    envoy, extensions = SlowEnvoy(), response(EXTENSION)

    async def end_stream(context: Any) -> None:
        await context.write(extensions)
        await envoy.writing.wait()
        if is_rejected:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not any more")

    proxy_stack.front.stream = end_stream
    stream = asyncio.create_task(
        XdsProxy(proxy_stack.upstream, AgentSubscriptions({}), proxy_stack.counts, NoRewrite())._proxy(DELTA, envoy)
    )
    await until(lambda: proxy_stack.counts.counts["ended error"] if is_rejected else envoy.writing.is_set())
    await asyncio.wait([stream], timeout=0.1)
    assert (stream.done(), envoy.status) == (False, ())
    envoy.may_write.set()
    await stream
    assert envoy.writes == [extensions]
    assert envoy.status == ((grpc.StatusCode.PERMISSION_DENIED, "not any more") if is_rejected else ())
