"""HTTP ports with bad clients: silent, slow, malformed, and too many."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import socket
import zlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pilot.xds.net import http
from pilot.xds.net.http import READ_BUFFER_SIZE, listen
from pilot.xds.net.http_connections import ConnectionTimeouts, Handler, HttpConnections
from pilot.xds.net.listen_address import Address

BIG = b"x" * (24 << 20)
REQUEST = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


class Port:
    """A port that closes inactive connections when a test calls `check_at` with the time."""

    server: web.Server

    def __init__(self, **timeouts: float) -> None:
        self.now = 0.0
        self.checks = 0
        self.connections = HttpConnections(ConnectionTimeouts(**{"check_interval": 1e9, **timeouts}), self.time)  # type: ignore[arg-type]
        self.number, self.processing, self.computed = 0, asyncio.Event(), asyncio.Event()

    def time(self) -> float:
        self.checks += 1
        return self.now

    async def compute_slowly(self) -> web.Response:
        self.processing.set()
        await self.computed.wait()
        return web.Response()

    async def open(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # else the kernel buffers the whole response
        client.connect(("127.0.0.1", self.number))
        reader, writer = await asyncio.open_connection(sock=client, limit=1 << 16)
        writer.write(data)
        await writer.drain()
        return reader, writer

    def check_at(self, now: float) -> int:
        self.now = now
        return self.connections.close_inactive()


@contextlib.asynccontextmanager
async def serving(*middlewares: Any, **timeouts: float) -> AsyncIterator[Port]:
    port = Port(**timeouts)
    app = web.Application(middlewares=middlewares)
    app.router.add_get("/big", lambda request: respond(BIG))
    app.router.add_get("/small", lambda request: respond(b"ok"))
    app.router.add_get("/slow", lambda request: port.compute_slowly())
    port.connections.add_to(app)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    assert runner.server is not None
    port.server = runner.server
    port.connections.start(runner.server)
    port.number = runner.addresses[0][1]
    try:
        yield port
    finally:
        await port.connections.stop(app)
        await runner.cleanup()


async def respond(body: bytes) -> web.Response:
    return web.Response(body=body)


async def ends(reader: asyncio.StreamReader) -> bool:
    """Return whether the peer closes the connection, after any data."""
    try:
        async with asyncio.timeout(5):
            while await reader.read(1 << 20):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def until(port: Port, connections: int) -> None:
    async with asyncio.timeout(10):
        while len(port.server.connections) != connections:
            await asyncio.sleep(0.005)


class FakeConnection:
    """A connection of aiohttp in a given state."""

    def __init__(self, buffered: int = 0, closing: bool = False) -> None:
        self.buffered, self.closing, self.aborts = buffered, closing, 0
        self.transport: FakeConnection | None = self

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborts += 1


def make_port(connections: Sequence[FakeConnection], **timeouts: float) -> Port:
    port = Port(**timeouts)
    server: Any = SimpleNamespace(connections=connections)
    port.connections.start(server)
    return port


async def test_each_connection_times_out_after_its_last_activity() -> None:
    silent, stuck, slow, closing = (
        FakeConnection(),
        FakeConnection(7),
        FakeConnection(1000),
        FakeConnection(7, closing=True),
    )
    port = make_port((silent, stuck, slow, closing))
    for now in (0.0, 10.0, 20.0, 29.0):
        slow.buffered -= 1
        assert port.check_at(now) == 0
    assert port.check_at(30.0) == 3
    assert [connection.aborts for connection in (silent, stuck, slow, closing)] == [1, 1, 0, 1]
    assert port.check_at(58.0) == 3
    assert slow.aborts == 0
    assert port.check_at(59.0) == 4
    slow.buffered = 0
    assert port.check_at(60.0) == 3, "a drained connection may be idle for a while"
    slow.transport = None
    assert port.check_at(89.0) == 3
    assert port.check_at(90.0) == 4, "a connection without a transport is not aborted"
    assert slow.aborts == 1


async def test_excess_connections_are_closed_longest_idle_first() -> None:
    oldest, old, new, newest = (FakeConnection() for _ in range(4))
    connections: list[FakeConnection] = []
    port = make_port(connections, max_connections=2)
    for connection, now in ((oldest, 0.0), (old, 5.0)):
        connections.append(connection)
        assert port.check_at(now) == 0
    connections += [new, newest]
    port.check_at(9.0)
    assert [connection.aborts for connection in (oldest, old, new, newest)] == [1, 1, 0, 0]
    connections[:] = [new, newest]
    assert port.check_at(10.0) == 0


async def test_connection_with_a_request_in_progress_is_not_idle() -> None:
    async with serving(max_connections=0) as port:
        _, writer = await port.open(REQUEST % b"slow")
        await port.processing.wait()
        reader, silent = await port.open()
        await until(port, 2)
        assert port.check_at(1) == 1
        assert await ends(reader)
        port.computed.set()
        writer.close()
        silent.close()


@pytest.mark.parametrize(
    "data", [b"", b"GET /small HTTP/1.1\r\nHost:", b"GET"], ids=["nothing", "half a head", "three bytes"]
)
async def test_connection_without_a_request_is_closed(data: bytes) -> None:
    async with serving() as port:
        reader, writer = await port.open(data)
        await until(port, 1)
        assert port.check_at(0) == 0
        assert port.check_at(29) == 0
        assert port.check_at(30) == 1
        assert await ends(reader)
        writer.close()


async def test_idle_timeout_between_requests() -> None:
    async with serving() as port:
        port.now = 7.0
        reader, writer = await port.open(REQUEST % b"small")
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
        assert port.check_at(60) == 0
        assert port.check_at(106) == 0
        assert port.check_at(107) == 1
        assert await ends(reader)
        writer.close()


async def test_slow_handler_is_awaited() -> None:
    async with serving() as port:
        _, writer = await port.open(REQUEST % b"slow")
        await port.processing.wait()
        assert port.check_at(0) == 0
        assert port.check_at(1000) == 0
        port.computed.set()
        writer.close()


async def test_request_in_a_middleware_is_in_progress() -> None:
    entered, proceed = asyncio.Event(), asyncio.Event()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        entered.set()
        await proceed.wait()
        return await handler(request)

    async with serving(middleware) as port:
        reader, writer = await port.open(REQUEST % b"small" + REQUEST % b"small")
        await entered.wait()
        assert port.check_at(1000) == 0
        proceed.set()
        for _ in range(2):
            await reader.readuntil(b"ok")
        assert port.check_at(1099) == 0
        assert port.check_at(1100) == 1
        writer.close()


async def test_stuck_reader_is_closed_and_slow_reader_is_not() -> None:
    async with serving() as port:
        stuck, stuck_writer = await port.open(REQUEST % b"big")
        slow, slow_writer = await port.open(REQUEST % b"big")
        await until(port, 2)
        await asyncio.gather(stuck.readuntil(b"\r\n\r\n"), slow.readuntil(b"\r\n\r\n"))
        assert port.check_at(1) == 0
        received = 0
        for now in range(20, 200, 20):
            received += len(await slow.readexactly(1 << 20))
            await asyncio.sleep(0.02)
            port.check_at(now)
        await until(port, 1)
        rest = await slow.readexactly(len(BIG) - received)
        assert received + len(rest) == len(BIG)
        stuck_writer.close()
        slow_writer.close()


async def test_port_survives_many_connections_and_malformed_requests() -> None:
    app = web.Application()
    app.router.add_get("/small", lambda request: respond(b"ok"))
    runner = await listen(app, Address("127.0.0.1", 0))
    number, rng = runner.addresses[0][1], random.Random(7)
    requests = [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /small HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01" * 100,
        b"GET /small?%zz=%\xff\xfe&&=;==[] HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /small HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        *(bytes(rng.randrange(256) for _ in range(300)) + b"\r\n\r\n" for _ in range(200)),
    ]
    try:
        connections = [await asyncio.open_connection("127.0.0.1", number) for _ in range(1000)]
        for (_, writer), payload in zip(connections, requests, strict=False):
            writer.write(payload)
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(REQUEST % b"small")
        async with asyncio.timeout(20):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        for _, open_writer in (*connections, (reader, writer)):
            open_writer.close()
    finally:
        await runner.cleanup()


async def test_listening_port_closes_inactive_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    connections = HttpConnections(ConnectionTimeouts(check_interval=1e9), lambda: now)
    monkeypatch.setattr(http, "HttpConnections", lambda: connections)

    async def handle(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", handle)
    runner = await listen(app, Address("127.0.0.1", 0))
    assert connections.close_inactive() == 0
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
    writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await reader.readuntil(b"ok")
    now = 99.0
    assert connections.close_inactive() == 0, "the idle timeout applies after the first request"
    now = 100.0
    assert connections.close_inactive() == 1
    writer.close()
    await runner.cleanup()


async def test_port_checks_periodically_until_it_stops() -> None:
    async with serving(first_request=0.0, check_interval=0.001) as port:
        reader, writer = await port.open(b"GET")
        assert await ends(reader)
        writer.close()
        await port.connections.stop(web.Application())
        checks = port.checks
        await asyncio.sleep(0.01)
        assert port.checks == checks


@pytest.mark.parametrize("takes_bodies", [False, True])
async def test_unfinished_body_is_awaited_only_where_bodies_are_taken(takes_bodies: bool) -> None:
    app = web.Application()
    app.router.add_route("*", "/small", lambda request: respond(b"ok"))
    runner = await listen(app, Address("127.0.0.1", 0), takes_bodies=takes_bodies)
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
    writer.write(b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nfirst")
    await reader.readuntil(b"ok")
    if takes_bodies:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.2)
    else:
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.transport.abort()
    await runner.cleanup()


async def test_unread_body_is_buffered_only_up_to_a_limit() -> None:
    """The rest waits in the buffers of the kernels, until the peer may not send any more."""
    app, entered, proceed = web.Application(), asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        entered.set()
        await proceed.wait()
        return web.Response(text=str(request.content.total_bytes))

    app.router.add_post("/", handle)
    runner = await listen(app, Address("127.0.0.1", 0), takes_bodies=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n" + bytes(100_000_000))
    await entered.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(writer.drain(), 0.5)
    proceed.set()
    received = int((await reader.readuntil(b"\r\n\r\n") and await reader.read(20)).split()[0])
    assert received <= READ_BUFFER_SIZE + (1 << 20)
    writer.transport.abort()
    await runner.cleanup()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_body_is_not_expanded(encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    body = gzip.compress(bytes(5_000_000)) if encoding == "gzip" else zlib.compress(bytes(5_000_000))
    app = web.Application()

    async def count(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app.router.add_post("/", count)
    runner = await listen(app, Address("127.0.0.1", 0))
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{runner.addresses[0][1]}/", data=body, headers={"Content-Encoding": encoding}
        ) as response,
    ):
        assert await response.text() == str(len(body))
    await runner.cleanup()
    assert not caplog.records
