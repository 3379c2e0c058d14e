"""Ports of a process: listening, draining, and occupied addresses."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pilot.bootstrap import ports
from pilot.bootstrap.ports import GrpcPort, HttpPort, listen_error
from pilot.bootstrap.security import secure_port
from pilot.lib.duration import parse_duration
from pilot.lib.start_error import StartError
from pilot.xds.net.listen_address import Address

DRAIN_TIME = parse_duration("7s")
FREE_PORT = Address("127.0.0.1", 0)


@pytest.fixture
def occupied() -> Iterator[Address]:
    """An address that another socket listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield Address(*other.getsockname())


async def respond(_: web.Request) -> web.Response:
    return web.Response(text="here")


def application() -> web.Application:
    app = web.Application()
    app.router.add_get("/", respond)
    return app


async def test_http_port_listens_until_it_stops() -> None:
    port = HttpPort(application(), FREE_PORT)
    assert port.number == 0
    await port.stop()
    await port.start()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port.number}/") as response:
        assert await response.text() == "here"
    await port.stop()
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", port.number)


async def test_occupied_http_address_aborts_the_start(occupied: Address) -> None:
    with pytest.raises(
        StartError, match=rf"^cannot listen on {occupied}: address already in use by process {os.getpid()} "
    ):
        await HttpPort(application(), occupied).start()


class Server:
    """A gRPC server that records calls."""

    def __init__(self, journal: list[Any], error: Exception | None = None) -> None:
        self.journal, self._error = journal, error

    def add_insecure_port(self, address: str) -> int:
        if self._error is not None:
            raise self._error
        self.journal.append(f"port {address}")
        return 4711

    async def start(self) -> None:
        self.journal.append("start")

    async def stop(self, grace: Any) -> None:
        self.journal.append(f"stop {grace}")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    lines: list[Any] = []

    async def drain(server: Any, connections: Any, seconds: float) -> None:
        lines.append(("drain", type(server).__name__, connections, seconds))

    monkeypatch.setattr(ports, "drain", drain)
    monkeypatch.setattr(secure_port, "drain", drain)
    return lines


async def test_grpc_port_drains_streams(journal: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    server: Any = Server(journal)
    connections: Any = ["connections"]
    port = GrpcPort(server, Address("127.0.0.1", 15010), connections, DRAIN_TIME)
    assert port.number == 15010
    await port.start()
    assert (port.number, journal, caplog.messages) == (4711, ["port 127.0.0.1:15010", "start"], [])
    await port.stop()
    assert journal[2:] == [("drain", "Server", connections, 7.0)]
    assert caplog.messages == ["shutting down: draining open streams for up to 7s"]


def test_error_names_the_flag_and_the_reason() -> None:
    address = Address("", 80, "httpAddr")
    assert str(listen_error(address, PermissionError(13, "Permission denied"))) == (
        "cannot listen on [::]:80 (--httpAddr): Permission denied; ports below 1024 require root"
    )
    unassigned = OSError(errno.EADDRNOTAVAIL, "error while attempting to bind on address ('10.0.0.1', 80): no")
    assert str(listen_error(Address("10.0.0.1", 80), unassigned)) == (
        "cannot listen on 10.0.0.1:80: this machine does not have the address"
    )


def test_error_says_that_a_host_cannot_be_resolved() -> None:
    error = listen_error(Address("web.invalid", 80, "httpAddr"), socket.gaierror(-3, "Temporary failure"))
    assert str(error) == (
        "cannot listen on web.invalid:80 (--httpAddr): the host cannot be resolved; use an IP address of this machine, or "
        "only the port for all of them"
    )


async def test_occupied_grpc_address_aborts_the_start(journal: list[Any]) -> None:
    server: Any = Server(journal, RuntimeError("Failed to bind"))
    with pytest.raises(StartError, match=r"^cannot listen on 127.0.0.1:1: Failed to bind$"):
        await GrpcPort(server, Address("127.0.0.1", 1), (), DRAIN_TIME).start()
    assert journal == []


def test_grpc_error_names_the_reason() -> None:
    assert str(listen_error(Address("192.0.2.1", 0), RuntimeError("Failed to bind"))) == (
        "cannot listen on 192.0.2.1:0: this machine does not have the address"
    )
