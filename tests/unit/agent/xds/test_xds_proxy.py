"""ADS passed through between an Envoy on a socket and a control plane behind TLS."""

from __future__ import annotations

import asyncio
import collections
import datetime
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from envoy.config.core.v3 import extension_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2
from grpc import aio

from pilot.agent.unix_sockets import EOF, build_server, serve
from pilot.agent.upstream_server import UpstreamServer
from pilot.agent.wasm.extension_stream import ExtensionStream, Outcome
from pilot.agent.xds.agent_subscriptions import AgentSubscriptions
from pilot.agent.xds.downstream_writer import DownstreamWriter
from pilot.agent.xds.response_type import read_type_url
from pilot.agent.xds.xds_proxy import XdsProxy
from pilot.lib.xds_types import EXTENSION
from testing.control_planes.secure_port import ADS, METHODS, NAME, SecurePort, until
from testing.security import certificates

SOTW, DELTA = METHODS
IDENTITY = "spiffe://cluster.local/ns/shop/sa/web"
CLUSTER, NAMES = "type.googleapis.com/envoy.config.cluster.v3.Cluster", "type.googleapis.com/names"


class Counts:
    """Counts what the proxy observes."""

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
    """A control plane that records what it reads and writes what a test puts into `say`; None ends the stream."""

    def __init__(self) -> None:
        self.heard, self.say, self.streams = list[bytes](), asyncio.Queue[bytes | None](), 0
        self.ended = asyncio.Event()

    async def serve(self, context: Any) -> None:
        self.streams += 1
        reading = asyncio.create_task(self._read(context))
        try:
            while (raw := await self.say.get()) is not None:
                await context.write(raw)
        finally:
            reading.cancel()
            self.ended.set()

    async def _read(self, context: Any) -> None:
        while (raw := await context.read()) is not EOF:
            self.heard.append(raw)


class Mesh:
    """Envoy's end of the socket, the agent between, and the control plane."""

    def __init__(self, folder: pathlib.Path, taken: list[list[bytes]]) -> None:
        self.plane, self.counts, self._folder = Plane(), Counts(), folder
        self.front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)), self.plane.serve)
        self.own = AgentSubscriptions({NAMES: self._take})
        self.taken = taken

    def _take(self, resources: list[bytes]) -> None:
        if resources == [b"bad"]:
            raise ValueError("no table")
        self.taken.append(resources)

    async def start(self, own: bool) -> None:
        await self.front.start()
        (self._folder / "token").write_text(IDENTITY)
        token, root = str(self._folder / "token"), str(self.front.write_root(self._folder))
        self.upstream = UpstreamServer(self.front.address, root, NAME, token, "west", None, {"X-Mine": "1"})
        self.server = build_server()
        self.server.add_generic_rpc_handlers(
            (XdsProxy(self.upstream, self.own if own else AgentSubscriptions({}), self.counts).handlers(),)
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


@pytest.fixture(params=[False, True], ids=["plain", "with own subscriptions"])
async def mesh(request: Any, tmp_path: pathlib.Path) -> AsyncIterator[Mesh]:
    made = Mesh(tmp_path, [])
    await made.start(request.param)
    yield made
    await made.stop()


@pytest.fixture
async def subscribed(tmp_path: pathlib.Path) -> AsyncIterator[Mesh]:
    made = Mesh(tmp_path, [])
    await made.start(True)
    yield made
    await made.stop()


def response(type_url: str, method: str = DELTA, nonce: str = "1", *bodies: bytes) -> bytes:
    if method == DELTA:
        made: Any = discovery_pb2.DeltaDiscoveryResponse(type_url=type_url, nonce=nonce)
        for body in bodies:
            made.resources.add().resource.value = body
    else:
        made = discovery_pb2.DiscoveryResponse(type_url=type_url, nonce=nonce, version_info="v")
        for body in bodies:
            made.resources.add().value = body
    raw: bytes = made.SerializeToString()
    return raw


@pytest.mark.parametrize("method", METHODS)
async def test_bytes_come_and_go_as_they_are(mesh: Mesh, method: str) -> None:
    call = mesh.call(method)
    unknown = b"\xba\x3e\x03new"  # a field that no version knows yet
    said = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER).SerializeToString() + unknown
    await call.write(said)
    await until(lambda: said in mesh.plane.heard)
    answer = response(CLUSTER, method, "1", b"x" * 3_000_000) + unknown
    await mesh.plane.say.put(answer)
    assert await call.read() == answer
    call.cancel()


async def test_nacks_reach_the_control_plane(mesh: Mesh) -> None:
    call = mesh.call()
    detail = status_pb2.Status(code=13, message="no such filter")
    nack = discovery_pb2.DeltaDiscoveryRequest(
        type_url=CLUSTER, response_nonce="1", error_detail=detail
    ).SerializeToString()
    await call.write(nack)
    await until(lambda: nack in mesh.plane.heard)
    call.cancel()


async def test_the_control_plane_sees_the_token_and_the_cluster(mesh: Mesh) -> None:
    call = mesh.call()
    await call.write(b"")
    headers = (await until(lambda: mesh.front.metadata))[0]
    assert headers["authorization"] == f"Bearer {IDENTITY}"
    assert (headers["clusterid"], headers["x-mine"]) == ("west", "1")
    call.cancel()


async def test_envoys_end_of_the_stream_ends_the_other(mesh: Mesh) -> None:
    call = mesh.call()
    await call.write(b"")
    await until(lambda: mesh.plane.heard)
    call.cancel()
    await asyncio.wait_for(mesh.plane.ended.wait(), 20)


async def test_when_the_control_plane_ends_a_stream_envoy_opens_the_next(mesh: Mesh) -> None:
    for number in (1, 2):
        call = mesh.call()
        await call.write(b"")
        await until(lambda number=number: mesh.plane.streams == number)
        await mesh.plane.say.put(None)
        assert await call.read() is EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_refusal_is_passed_on_with_its_reason(mesh: Mesh) -> None:
    async def refuse(context: Any) -> None:
        await context.read()
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "authorization failed")

    mesh.front.stream = refuse
    call = mesh.call()
    await call.write(b"")
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.PERMISSION_DENIED, "authorization failed")


async def test_a_control_plane_that_is_away_is_unavailable_and_counted(mesh: Mesh) -> None:
    await mesh.front.stop()
    call = mesh.call()
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert mesh.counts.counts["failed"] == 1


async def test_a_token_that_is_not_there_is_said_to_envoy(mesh: Mesh, tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").unlink()
    call = mesh.call()
    with pytest.raises(aio.AioRpcError) as raised:
        await call.read()
    assert "no token in" in (raised.value.details() or "")


@pytest.mark.parametrize("method", METHODS)
async def test_what_the_agent_asks_for_itself_rides_along_and_never_reaches_envoy(
    subscribed: Mesh, method: str
) -> None:
    mesh, message = (
        subscribed,
        discovery_pb2.DeltaDiscoveryRequest if method == DELTA else discovery_pb2.DiscoveryRequest,
    )
    call = mesh.call(method)
    await call.write(b"first")
    await until(lambda: len(mesh.plane.heard) == 2)
    assert mesh.plane.heard[0] == b"first"
    assert message.FromString(mesh.plane.heard[1]) == message(type_url=NAMES)
    await mesh.plane.say.put(response(NAMES, method, "7", b"a", b"b"))
    await until(lambda: len(mesh.plane.heard) == 3)
    ack = message.FromString(mesh.plane.heard[2])
    assert (ack.type_url, ack.response_nonce, ack.HasField("error_detail")) == (NAMES, "7", False)
    assert mesh.taken == [[b"a", b"b"]]
    await mesh.plane.say.put(response(NAMES, method, "8", b"bad"))
    await until(lambda: len(mesh.plane.heard) == 4)
    assert message.FromString(mesh.plane.heard[3]).error_detail.message == "no table"
    await mesh.plane.say.put(response(CLUSTER, method))
    assert await call.read() == response(CLUSTER, method)
    call.cancel()


class SecondTime:
    """Rewrites what it is asked for the second time."""

    def __init__(self) -> None:
        self.asked = 0

    def rewrite(self, packed: Any) -> Outcome:
        self.asked += 1
        packed.value = extension_pb2.TypedExtensionConfig(name=f"r{self.asked}").SerializeToString()
        return "rewritten" if self.asked == 2 else "pending"


async def test_envoy_is_given_a_module_once_it_can_be_had() -> None:
    written = asyncio.Queue[bytes]()

    class Envoy:
        async def write(self, raw: bytes) -> None:
            written.put_nowait(raw)

    response = discovery_pb2.DiscoveryResponse(type_url=EXTENSION, nonce="n", version_info="v")
    response.resources.add().Pack(extension_pb2.TypedExtensionConfig(name="r"))
    downwards = DownstreamWriter(Envoy(), ExtensionStream(SecondTime(), delta=False), (0.001, 0.002))
    try:
        await downwards.write(response.SerializeToString())
        found = [
            discovery_pb2.DiscoveryResponse.FromString(await asyncio.wait_for(written.get(), 20)) for _ in range(2)
        ]
    finally:
        downwards.close()
    assert [extension_pb2.TypedExtensionConfig.FromString(one.resources[0].value).name for one in found] == ["r1", "r2"]
    assert {(one.nonce, one.version_info, one.type_url) for one in found} == {("n", "v", EXTENSION)}


class AsItIs:
    """Leaves resources as they are."""

    def rewrite(self, packed: Any) -> Outcome:
        return "unchanged"


class SlowEnvoy:
    """Envoy's call, which takes what is written when `may_take` is set, and no status meanwhile."""

    def __init__(self) -> None:
        self.may_take, self.writing, self.written = asyncio.Event(), asyncio.Event(), list[bytes]()
        self.status: tuple[Any, ...] = ()

    async def read(self) -> Any:
        return await asyncio.Event().wait()

    async def write(self, raw: bytes) -> None:
        self.writing.set()
        await self.may_take.wait()
        self.writing.clear()
        self.written.append(raw)

    async def abort(self, *status: Any) -> None:
        assert not self.writing.is_set()
        self.status = status


@pytest.mark.parametrize("refused", [True, False])
async def test_a_stream_ends_once_envoy_has_taken_what_is_being_written(mesh: Mesh, refused: bool) -> None:
    envoy, extensions = SlowEnvoy(), response(EXTENSION)

    async def end(context: Any) -> None:
        await context.write(extensions)
        await envoy.writing.wait()
        if refused:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not any more")

    mesh.front.stream = end
    stream = asyncio.create_task(
        XdsProxy(mesh.upstream, AgentSubscriptions({}), mesh.counts, AsItIs())._proxy(DELTA, envoy)
    )
    await until(lambda: mesh.counts.counts["ended error"] if refused else envoy.writing.is_set())
    await asyncio.wait([stream], timeout=0.1)
    assert (stream.done(), envoy.status) == (False, ())
    envoy.may_take.set()
    await stream
    assert envoy.written == [extensions]
    assert envoy.status == ((grpc.StatusCode.PERMISSION_DENIED, "not any more") if refused else ())


def test_the_type_of_a_response_is_read_off_its_bytes() -> None:
    assert read_type_url(response(CLUSTER, DELTA, "1", b"x" * 1000, b"")) == CLUSTER
    assert read_type_url(response(CLUSTER, SOTW, "1", b"x" * 1000)) == CLUSTER
    assert (
        read_type_url(b"\x08\x96\x01\x0d1234\x1112345678" + response(CLUSTER)) == CLUSTER
    )  # fields of every wire type


@pytest.mark.parametrize(
    "raw", [b"", b"\x22", b"\x22\x05abc", b"\x22\x01\xff", b"\x0b", b"\xff" * 12, response(CLUSTER)[:-1]]
)
def test_what_is_no_response_has_no_type(raw: bytes) -> None:
    assert read_type_url(raw) == ""
