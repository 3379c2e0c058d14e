"""HTTP over TLS, with peers that do not complete their handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from ca.server_certificate import issue_server_certificates
from pilot.xds.net import tls_site
from pilot.xds.net.http import listen
from pilot.xds.net.listen_address import Address
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context
from testing.security.certificates import root

NOW = datetime.datetime.now(datetime.UTC)
SIGNER = root(8, now=NOW)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", answer)
    pairs = [CertificatePair(*pair) for pair in issue_server_certificates(SIGNER, ["localhost"], NOW)]
    context = make_context(pairs, SIGNER.roots_pem, TlsRules(), "http/1.1")
    runner = await listen(app, Address("127.0.0.1", 0), context)
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def get(port: int) -> str:
    context = ssl.create_default_context(cadata=SIGNER.roots_pem.decode())
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session,
        session.get(f"https://127.0.0.1:{port}/", ssl=context, server_hostname="localhost") as response,
    ):
        return await response.text()


async def is_closed(stream: Stream) -> bool:
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(0.05):
            return not await stream[0].read(1)
    return False


async def test_silent_connections_are_ended_for_new_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_site, "MAX_HANDSHAKES", 4)
    async with serving() as port:
        silent = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0)) for _ in range(20)]
        for _, writer in silent[10:]:
            writer.write(b"\x16\x03\x01\x40\x00\x01")  # a part of a ClientHello
        other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.8", 0))
        assert await get(port) == "ok"
        async with asyncio.timeout(10):
            while sum([await is_closed(stream) for stream in silent]) < 16:
                pass
        assert not await is_closed(other)
        for _, writer in (*silent, other):
            writer.close()


async def test_handshake_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_site, "HANDSHAKE_TIMEOUT", 0.1)
    async with serving() as port:
        stream = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            assert await stream[0].read() == b""
        stream[1].close()
        assert await get(port) == "ok"


async def test_failed_handshakes_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as port:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"nonsense")
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            writer.close()
        assert await get(port) == "ok"
    assert not caplog.records


async def test_client_that_speaks_plain_http_is_told_to_use_tls(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        serving() as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/inject") as response,
    ):
        assert response.status == 400
        assert await response.text() == "This port accepts TLS only: use https, or for gRPC a channel with TLS.\n"
    assert caplog.messages == [f"a client at 127.0.0.1 speaks HTTP without TLS to the TLS port {port}: use https"]


async def test_grpc_client_without_tls_is_told_of_the_plaintext_port(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.read()
        writer.close()
    fix = "configure TLS, or use port 15010 (--grpcAddr)"
    assert caplog.messages == [f"a client at 127.0.0.1 speaks HTTP without TLS to the TLS port {port}: {fix}"]


async def test_closed_port_ends_unfinished_handshakes() -> None:
    async with serving() as port:
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert await get(port) == "ok"
    for reader, writer in streams:
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
