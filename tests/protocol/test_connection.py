"""Tests of single connections."""

from __future__ import annotations

import logging

import msgspec
import pytest

from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.xds.push.connection import Connection
from pilot.xds.session.session import Response
from pilot.xds.session.snapshot import TypeState
from testing.clients.ads import Client, serving
from testing.clients.fleet import CDS
from testing.clients.scripted_stream import delta

PROXY = Proxy(type=NodeType.SIDECAR, id="web-0.a", ips=("10.0.0.1",), dns_domain="", namespace="a", metadata={})


def make_connection(identity: str = "", **metadata: str) -> Connection:
    proxy = msgspec.structs.replace(PROXY, identity=identity, metadata=metadata)
    return Connection(3, "key", proxy, "10.0.0.1:99", 0.0, delta(), {})


def test_slow_write_is_logged_and_aborted(caplog: pytest.LogCaptureFixture) -> None:
    connection, aborts = make_connection(), []
    connection.abort_slow_write()  # without a stream, nothing to abort
    connection.abort = lambda: aborts.append("aborted")
    connection.abort_slow_write()
    assert aborts == ["aborted"]
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == 2 * [
        (logging.WARNING, "ADS: web-0.a-3 does not read responses; closing its stream")
    ]


async def test_type_is_shared_while_several_proxies_subscribe() -> None:
    async with serving() as server, Client(server) as client:
        server.set("cds/all", a="1")
        await client.request("cds")
        await client.receive()
        [connection] = server.discovery.connections()
        assert not connection.is_shared(CDS)
        async with Client(server) as other:
            await other.request("cds")
            await other.receive()
            assert connection.is_shared(CDS)
        await server.eventually(lambda: not connection.is_shared(CDS))
        assert connection.nodes()
    await server.eventually(lambda: not connection.nodes())


def test_unauthenticated_peer_is_its_address() -> None:
    assert make_connection().peer == "10.0.0.1"
    connection = make_connection()
    connection.address = "[fd00::1]:99"
    assert connection.peer == "[fd00::1]"


RESPONSE = Response("x", TypeState("x", ()), ())


def test_acked_revision_follows_the_acknowledged_response() -> None:
    connection = make_connection()
    connection.mark_acked("x")
    assert connection.acked_revision("x") == -1
    connection.mark_sent(RESPONSE, 5, "n")
    assert (connection.acked_revision("x"), connection.activity) == (-1, 1)
    connection.mark_acked("x")
    connection.mark_sent(RESPONSE, 7, "m")
    assert (connection.acked_revision("x"), connection.acked_revision("y")) == (5, -1)
    connection.mark_acked("x")
    assert connection.acked_revision("x") == 7


def test_finish_wakes_the_writer() -> None:
    connection = make_connection()
    assert (connection.finished, connection.changed.is_set()) == (False, False)
    connection.finish()
    assert (connection.finished, connection.changed.is_set()) == (True, True)
