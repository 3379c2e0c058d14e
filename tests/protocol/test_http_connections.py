"""HTTP ports with bad clients: silent ones, ones that do not read, ones that send nonsense, and a thousand at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from pilot.xds.net import http
from pilot.xds.net.http import listen
from pilot.xds.net.http_connections import ConnectionTimeouts, Handler, HttpConnections
from pilot.xds.net.listen_address import Address

BIG = b"x" * (24 << 20)
REQUEST = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


class Port:
    """A port that closes inactive connections when a test calls `snapshot_stream` with the time."""

    server: web.Server

    def __init__(self, **patience: float) -> None:
        self.now = 0.0
        self.looks = 0
        self.connections = HttpConnections(ConnectionTimeouts(**{"check_interval": 1e9, **patience}), self.time)  # type: ignore[arg-type]
        self.number, self.processing, self.computed = 0, asyncio.Event(), asyncio.Event()

    def time(self) -> float:
        self.looks += 1
        return self.now

    async def computed_slowly(self) -> web.Response:
        self.processing.set()
        await self.computed.wait()
        return web.Response()

    async def open(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        made = socket.socket()
        made.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16
        )  # else the system takes an answer before anybody reads it
        made.connect(("127.0.0.1", self.number))
        reader, writer = await asyncio.open_connection(sock=made, limit=1 << 16)
        writer.write(sent)
        await writer.drain()
        return reader, writer

    def snapshot_stream(self, now: float) -> int:
        self.now = now
        return self.connections.close_inactive()


@contextlib.asynccontextmanager
async def serving(*middlewares: Any, **patience: float) -> AsyncIterator[Port]:
    port = Port(**patience)
    app = web.Application(middlewares=middlewares)
    app.router.add_get("/big", lambda request: answered(BIG))
    app.router.add_get("/small", lambda request: answered(b"ok"))
    app.router.add_get("/slow", lambda request: port.computed_slowly())
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


async def answered(body: bytes) -> web.Response:
    return web.Response(body=body)


async def ends(reader: asyncio.StreamReader) -> bool:
    """Whether the peer closes, whatever comes before."""
    try:
        async with asyncio.timeout(5):
            while await reader.read(1 << 20):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def until(port: Port, count: int) -> None:
    async with asyncio.timeout(10):
        while len(port.server.connections) != count:
            await asyncio.sleep(0.005)


class FakeConnection:
    """A connection of aiohttp, in a state that a test sets."""

    def __init__(self, waiting: int = 0, closing: bool = False) -> None:
        self.waiting, self.closing, self.aborted = waiting, closing, 0
        self.transport: FakeConnection | None = self

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted += 1


def looking(connections: Sequence[FakeConnection], **patience: float) -> Port:
    port = Port(**patience)
    server: Any = SimpleNamespace(connections=connections)
    port.connections.start(server)
    return port


async def test_each_connection_has_its_own_time_from_what_it_did_last() -> None:
    silent, stuck, reads, going = (
        FakeConnection(),
        FakeConnection(7),
        FakeConnection(1000),
        FakeConnection(7, closing=True),
    )
    port = looking((silent, stuck, reads, going))
    for now in (0.0, 10.0, 20.0, 29.0):
        reads.waiting -= 1
        assert port.snapshot_stream(now) == 0
    assert port.snapshot_stream(30.0) == 3
    assert [one.aborted for one in (silent, stuck, reads, going)] == [1, 1, 0, 1]
    assert port.snapshot_stream(58.0) == 3
    assert reads.aborted == 0
    assert port.snapshot_stream(59.0) == 4
    reads.waiting = 0
    assert port.snapshot_stream(60.0) == 3, "it has read everything, and may be silent for a while"
    reads.transport = None
    assert port.snapshot_stream(89.0) == 3
    assert port.snapshot_stream(90.0) == 4, "what has no transport any more is not aborted"
    assert reads.aborted == 1


async def test_if_there_are_too_many_those_go_that_are_idle_longest() -> None:
    done, old, new, newest = (FakeConnection() for _ in range(4))
    connections: list[FakeConnection] = []
    port = looking(connections, max_connections=2)
    for connection, at in ((done, 0.0), (old, 5.0)):
        connections.append(connection)
        assert port.snapshot_stream(at) == 0
    connections += [new, newest]
    port.snapshot_stream(9.0)
    assert [one.aborted for one in (done, old, new, newest)] == [1, 1, 0, 0]
    connections[:] = [new, newest]
    assert port.snapshot_stream(10.0) == 0


async def test_a_connection_whose_request_is_processed_is_not_idle() -> None:
    async with serving(max_connections=0) as port:
        _, writer = await port.open(REQUEST % b"slow")
        await port.processing.wait()
        reader, silent = await port.open()
        await until(port, 2)
        assert port.snapshot_stream(1) == 1
        assert await ends(reader)
        port.computed.set()
        writer.close()
        silent.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /small HTTP/1.1\r\nHost:", b"GET"], ids=["nothing", "half a head", "three bytes"]
)
async def test_who_sends_no_request_is_let_go(sent: bytes) -> None:
    async with serving() as port:
        reader, writer = await port.open(sent)
        await until(port, 1)
        assert port.snapshot_stream(0) == 0
        assert port.snapshot_stream(29) == 0
        assert port.snapshot_stream(30) == 1
        assert await ends(reader)
        writer.close()


async def test_a_connection_may_wait_longer_between_requests() -> None:
    async with serving() as port:
        port.now = 7.0
        reader, writer = await port.open(REQUEST % b"small")
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
        assert port.snapshot_stream(60) == 0
        assert port.snapshot_stream(106) == 0
        assert port.snapshot_stream(107) == 1
        assert await ends(reader)
        writer.close()


async def test_what_is_being_computed_is_waited_for() -> None:
    async with serving() as port:
        _, writer = await port.open(REQUEST % b"slow")
        await port.processing.wait()
        assert port.snapshot_stream(0) == 0
        assert port.snapshot_stream(1000) == 0
        port.computed.set()
        writer.close()


async def test_a_request_is_in_process_from_the_first_middleware_on() -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()

    @web.middleware
    async def other(request: web.Request, handler: Handler) -> web.StreamResponse:
        waiting.set()
        await go_on.wait()
        return await handler(request)

    async with serving(other) as port:
        reader, writer = await port.open(REQUEST % b"small" + REQUEST % b"small")
        await waiting.wait()
        assert port.snapshot_stream(1000) == 0
        go_on.set()
        for _ in range(2):
            await reader.readuntil(b"ok")
        assert port.snapshot_stream(1099) == 0
        assert port.snapshot_stream(1100) == 1
        writer.close()


async def test_who_does_not_read_is_let_go_and_who_reads_slowly_is_not() -> None:
    async with serving() as port:
        stuck, stuck_writer = await port.open(REQUEST % b"big")
        slow, slow_writer = await port.open(REQUEST % b"big")
        await until(port, 2)
        await asyncio.gather(stuck.readuntil(b"\r\n\r\n"), slow.readuntil(b"\r\n\r\n"))
        assert port.snapshot_stream(1) == 0
        read = 0
        for now in range(20, 200, 20):
            read += len(await slow.readexactly(1 << 20))
            await asyncio.sleep(0.02)
            port.snapshot_stream(now)
        await until(port, 1)
        rest = await slow.readexactly(len(BIG) - read)
        assert read + len(rest) == len(BIG)
        stuck_writer.close()
        slow_writer.close()


async def test_of_too_many_those_go_that_are_silent_longest() -> None:
    async with serving(max_connections=2) as port:
        first = await port.open()
        await until(port, 1)
        port.snapshot_stream(1)
        others = [await port.open() for _ in range(2)]
        await until(port, 3)
        assert port.snapshot_stream(2) == 1
        assert await ends(first[0])
        for _, writer in (first, *others):
            writer.close()


async def test_a_thousand_connections_and_nonsense_leave_a_port_as_it_was() -> None:
    app = web.Application()
    app.router.add_get("/small", lambda request: answered(b"ok"))
    runner = await listen(app, Address("127.0.0.1", 0))
    number, chosen = runner.addresses[0][1], random.Random(7)
    nonsense = [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /small HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01" * 100,
        b"GET /small?%zz=%\xff\xfe&&=;==[] HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /small HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        *(bytes(chosen.randrange(256) for _ in range(300)) + b"\r\n\r\n" for _ in range(200)),
    ]
    try:
        opened = [await asyncio.open_connection("127.0.0.1", number) for _ in range(1000)]
        for (_, writer), sent in zip(opened, nonsense, strict=False):
            writer.write(sent)
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(REQUEST % b"small")
        async with asyncio.timeout(20):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        for _, open_writer in (*opened, (reader, writer)):
            open_writer.close()
    finally:
        await runner.cleanup()


async def test_a_port_that_listens_looks_after_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    made = HttpConnections(ConnectionTimeouts(check_interval=1e9), lambda: now)
    monkeypatch.setattr(http, "HttpConnections", lambda: made)

    async def show(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", show)
    runner = await listen(app, Address("127.0.0.1", 0))
    assert made.close_inactive() == 0
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
    writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await reader.readuntil(b"ok")
    now = 99.0
    assert made.close_inactive() == 0, "it may wait longer after its first request"
    now = 100.0
    assert made.close_inactive() == 1
    writer.close()
    await runner.cleanup()


async def test_a_port_looks_by_itself_until_it_stops() -> None:
    async with serving(first_request=0.0, check_interval=0.001) as port:
        reader, writer = await port.open(b"GET")
        assert await ends(reader)
        writer.close()
        await port.connections.stop(web.Application())
        looks = port.looks
        await asyncio.sleep(0.01)
        assert port.looks == looks
