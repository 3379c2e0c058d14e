"""Resolution of network gateways that have only a hostname: DNS messages, lookups and refresh."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.host_names.gateway_names import GatewayNames
from pilot.ingest.host_names.lookup import LookupFailed, NameServers, ResolvedName, read_name_servers
from pilot.ingest.host_names.message import AAAA, A, build_query, parse_reply
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.registry.networks import NetworkGateway, network_gateways, unresolved_gateways
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock

HOST, OTHER = "gw.example.com", "other.example.com"


# -- messages --------------------------------------------------------------------------------------------------------------


def record(kind: int, data: bytes, seconds: int = 60, name: bytes = b"\xc0\x0c") -> bytes:
    return name + struct.pack(">HHIH", kind, 1, seconds, len(data)) + data


def reply_to(query: bytes, *records: bytes, flags: int = 0x8180) -> bytes:
    return query[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0) + query[12:] + b"".join(records)


V4, V6 = bytes((192, 0, 2, 1)), bytes.fromhex("20010db8000000000000000000000001")


def test_query_has_one_question_with_recursion() -> None:
    assert build_query(7, "a.bc.", A) == bytes.fromhex(
        "0007 0100 0001 0000 0000 0000"
    ) + b"\x01a\x02bc\0" + bytes.fromhex("0001 0001")


def test_reply_follows_aliases_and_has_the_shortest_ttl() -> None:
    query = build_query(7, HOST, A)
    alias = record(5, b"\x03lb1\xc0\x0f", 45)
    reply = parse_reply(query, reply_to(query, alias, record(A, V4, 300, b"\x03lb1\xc0\x0f"), record(AAAA, V6, 300)))
    assert (reply.addresses, reply.seconds, reply.code, reply.cut) == (("192.0.2.1",), 45, 0, False)


@pytest.mark.parametrize(("ttl", "expected"), [(2**31 - 1, 2**31 - 1), (2**31, 0), (2**32 - 1, 0)])
def test_negative_ttl_is_zero(ttl: int, expected: int) -> None:
    """RFC 2181, section 8."""
    query = build_query(7, HOST, A)
    assert parse_reply(query, reply_to(query, record(A, V4, ttl))).seconds == expected


def test_truncated_reply_has_no_addresses() -> None:
    query = build_query(7, HOST, A)
    reply = parse_reply(query, reply_to(query, record(A, V4), flags=0x8380))
    assert (reply.addresses, reply.seconds, reply.cut) == ((), None, True)


def test_read_name_servers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "resolv.conf").write_text(
        "# nameserver 192.0.2.9\nnameserver 192.0.2.1\nnameserver\noptions nameserver x\nnameserver ::1\n"
    )
    assert read_name_servers(str(tmp_path / "resolv.conf")) == (("192.0.2.1", 53), ("::1", 53))
    assert read_name_servers(str(tmp_path / "gone")) == ()


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda query, reply: b"xx" + reply[2:],
        lambda query, reply: reply[:-1],
        lambda query, reply: b"",
        lambda query, reply: query,
        lambda query, reply: reply_to(build_query(7, OTHER, A), record(A, V4)),
        lambda query, reply: reply_to(build_query(7, HOST, AAAA), record(A, V4)),
    ],
)
def test_invalid_reply_is_rejected(corrupt: Callable[[bytes, bytes], bytes]) -> None:
    query = build_query(7, HOST, A)
    with pytest.raises(ValueError, match="the response "):
        parse_reply(query, corrupt(query, reply_to(query, record(A, V4))))


@pytest.mark.parametrize("name", ["", ".", "a..b", "x" * 64, ".".join(["x" * 50] * 6)])
def test_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"name|label"):
        build_query(1, name, A)


# -- lookups ---------------------------------------------------------------------------------------------------------------


class NameServer:
    """A name server on UDP and TCP. `records` are by name and type; a name without records does not exist."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], list[bytes]] = {}
        self.flags = 0x8180
        self.cut = False

    async def start(self) -> None:
        loop, outer = asyncio.get_running_loop(), self

        class Udp(asyncio.DatagramProtocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def datagram_received(self, data: bytes, addr: Any) -> None:
                self.transport.sendto(reply_to(data, flags=0x8380) if outer.cut else outer.answer(data), addr)

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            (size,) = struct.unpack(">H", await reader.readexactly(2))
            answer = self.answer(await reader.readexactly(size))
            writer.write(struct.pack(">H", len(answer)) + answer)
            await writer.drain()
            writer.close()

        self.tcp = await asyncio.start_server(converse, "127.0.0.1", 0)
        self.address = self.tcp.sockets[0].getsockname()[:2]
        self.udp, _ = await loop.create_datagram_endpoint(Udp, self.address)

    def answer(self, query: bytes) -> bytes:
        name, offset = "", 12
        while length := query[offset]:
            name += query[offset + 1 : offset + 1 + length].decode() + "."
            offset += 1 + length
        kind = struct.unpack(">H", query[offset + 1 : offset + 3])[0]
        name = name.removesuffix(".")
        exists = any(n == name for n, _ in self.records)
        return reply_to(query, *self.records.get((name, kind), ()), flags=self.flags if exists else 0x8183)

    def stop(self) -> None:
        self.udp.close()
        self.tcp.close()


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    name_server = NameServer()
    await name_server.start()
    yield name_server
    name_server.stop()


@pytest.mark.parametrize("cut", [False, True])
async def test_lookup_returns_addresses_of_both_families(server: NameServer, cut: bool) -> None:
    """A truncated UDP response is retried over TCP."""
    server.cut = cut
    server.records = {
        (HOST, A): [record(A, V4, 90)],
        (HOST, AAAA): [record(AAAA, V6, 80)],
        (OTHER, A): [record(A, V4, 70)],
    }
    names = NameServers((server.address,), 5)
    assert await names.look_up(HOST) == ResolvedName(("192.0.2.1", "2001:db8::1"), 80)
    assert await names.look_up(OTHER) == ResolvedName(("192.0.2.1",), 70)


async def test_lookup_falls_back_to_the_next_server(server: NameServer) -> None:
    server.records = {(HOST, A): [record(A, V4)]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        unused_address = unused.getsockname()
    assert (await NameServers((unused_address, server.address), 5).look_up(HOST)).addresses == ("192.0.2.1",)


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [("gone.example.com", 0x8180, "does not exist"), (HOST, 0x8182, "code 2"), ("a..b", 0x8180, "not a valid name")],
)
async def test_failed_lookup_has_a_reason(server: NameServer, name: str, flags: int, message: str) -> None:
    server.records, server.flags = {(HOST, A): []}, flags
    with pytest.raises(LookupFailed, match=message):
        await NameServers((server.address,), 5).look_up(name)


async def test_lookup_fails_without_servers() -> None:
    with pytest.raises(LookupFailed, match="no name servers"):
        await NameServers(read_name_servers("/nowhere"), 5).look_up(HOST)


# -- refresh ---------------------------------------------------------------------------------------------------------------


class ResolvedMesh:
    """A mesh whose gateway names are resolved. `answers` are by name; `delays` are the sleeps, which `wake` ends."""

    def __init__(self) -> None:
        self.mesh, self.problems = Mesh(), ProblemStore(lambda _: None)
        self.answers: dict[str, ResolvedName | Exception] = {}
        self.lookups: list[str] = []
        self.delays: list[float] = []
        self._waking = asyncio.Event()
        self.batch = Batch(self.mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), self._committed)
        self.names = GatewayNames(self.mesh, self.batch, self, self.problems, sleep=self._sleep)

    def _committed(self, commit: Commit) -> None:
        self.names.reached(commit.hit)

    async def look_up(self, name: str) -> ResolvedName:
        self.lookups.append(name)
        answer = self.answers.get(name, LookupFailed("down"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        await self._waking.wait()

    async def wake(self) -> None:
        sleeping, self._waking = self._waking, asyncio.Event()
        sleeping.set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        self.batch.flush()

    def set(self, **gateways: str) -> None:
        """Set a network for each name, with a gateway at that address."""
        plain: Mapping[str, Any] = {
            "networks": {n: {"gateways": [{"address": a, "port": 15443}]} for n, a in gateways.items()}
        }
        self.batch.put([("MeshConfig", "networks", msgspec.convert(plain, MeshNetworks))])
        self.batch.flush()

    def gateways(self) -> list[str]:
        return [g.address for g in network_gateways(self.mesh).gateways]


async def test_gateway_uses_the_resolved_addresses() -> None:
    harness = ResolvedMesh()
    harness.answers[HOST] = ResolvedName(("192.0.2.1", "192.0.2.2"), 90)
    harness.set(net=HOST, other="192.0.2.9")
    assert harness.gateways() == ["192.0.2.9"]
    assert unresolved_gateways(harness.mesh) == (NetworkGateway(HOST, 15443, "net"),)
    await harness.names.start()
    await harness.settle()
    assert harness.gateways() == ["192.0.2.1", "192.0.2.2", "192.0.2.9"]
    assert network_gateways(harness.mesh).scale == 2
    assert unresolved_gateways(harness.mesh) == ()
    harness.answers[HOST] = ResolvedName(("192.0.2.3",), 90)
    await harness.wake()
    assert harness.gateways() == ["192.0.2.3", "192.0.2.9"]
    await harness.names.stop()


@pytest.mark.parametrize(("seconds", "delay"), [(1, 30), (90, 90), (10**6, 3600)])
async def test_refresh_delay_is_the_ttl_within_bounds(seconds: float, delay: float) -> None:
    harness = ResolvedMesh()
    harness.answers[HOST] = ResolvedName(("192.0.2.1",), seconds)
    harness.set(net=HOST)
    await harness.names.start()
    await harness.settle()
    assert harness.delays == [delay]
    await harness.names.stop()


async def test_last_addresses_are_kept_when_a_lookup_fails() -> None:
    harness = ResolvedMesh()
    harness.answers[HOST] = ResolvedName(("192.0.2.1",), 90)
    harness.set(net=HOST)
    await harness.names.start()
    await harness.settle()
    harness.answers[HOST] = LookupFailed("down")
    await harness.wake()
    assert harness.gateways() == ["192.0.2.1"]
    (problem,) = harness.problems
    assert problem.code == "gateway-not-resolved"
    assert "still using 192.0.2.1" in problem.message
    assert harness.delays[-1] == 30
    harness.answers[HOST] = ResolvedName(("192.0.2.1",), 90)
    await harness.wake()
    assert list(harness.problems) == []
    await harness.names.stop()


async def test_unchanged_addresses_do_not_recompute() -> None:
    harness = ResolvedMesh()
    harness.answers[HOST] = ResolvedName(("192.0.2.1",), 90)
    harness.set(net=HOST)
    await harness.names.start()
    await harness.settle()
    before = network_gateways(harness.mesh)
    await harness.wake()
    assert harness.lookups == [HOST, HOST]
    assert network_gateways(harness.mesh) is before
    await harness.names.stop()


async def test_resolved_names_follow_the_configuration() -> None:
    harness = ResolvedMesh()
    harness.answers = {HOST: ResolvedName(("192.0.2.1",), 90)}
    await harness.names.start()
    harness.set(net=HOST, far=OTHER)
    await harness.settle()
    assert harness.gateways() == ["192.0.2.1"]
    assert [p.code for p in harness.problems] == ["gateway-not-resolved"]
    harness.set(net="192.0.2.7")
    await harness.settle()
    assert harness.gateways() == ["192.0.2.7"]
    assert list(harness.problems) == []
    assert harness.mesh.resolved_hosts.peek(HOST) is None
    await harness.names.stop()
