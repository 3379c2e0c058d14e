"""Plaintext HTTP ports."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from pilot.xds.net.http import listen
from pilot.xds.net.listen_address import Address
from testing.processes.process import free_port


@pytest.mark.parametrize(
    "data",
    [b"\0" * 100, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"],
)
async def test_malformed_requests_are_rejected_without_logging(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    runner = await listen(web.Application(), Address("127.0.0.1", port))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        assert b" 400 " in await reader.readline()
        writer.close()
    finally:
        await runner.cleanup()
    assert not caplog.records


async def test_handler_exception_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: web.Request) -> web.Response:
        raise RuntimeError("broken")

    port = free_port()
    app = web.Application()
    app.router.add_get("/", fail)
    runner = await listen(app, Address("127.0.0.1", port))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 500 " in await reader.readline()
        writer.close()
    finally:
        await runner.cleanup()
    exceptions = [r.exc_info for r in caplog.records if r.name == "pilot.http"]
    assert [e is not None and str(e[1]) for e in exceptions] == ["broken"]
