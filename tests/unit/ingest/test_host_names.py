"""Gateways of networks that have only a host name: looked up, again when their records end, and what proxies are sent meanwhile."""

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


def test_a_question_asks_for_one_name_with_recursion() -> None:
    assert build_query(7, "a.bc.", A) == bytes.fromhex(
        "0007 0100 0001 0000 0000 0000"
    ) + b"\x01a\x02bc\0" + bytes.fromhex("0001 0001")


def test_addresses_are_read_past_aliases_and_hold_as_long_as_the_shortest_record() -> None:
    query = build_query(7, HOST, A)
    alias = record(5, b"\x03lb1\xc0\x0f", 45)
    found = parse_reply(query, reply_to(query, alias, record(A, V4, 300, b"\x03lb1\xc0\x0f"), record(AAAA, V6, 300)))
    assert (found.addresses, found.seconds, found.code, found.cut) == (("192.0.2.1",), 45, 0, False)


@pytest.mark.parametrize(("life", "holds"), [(2**31 - 1, 2**31 - 1), (2**31, 0), (2**32 - 1, 0)])
def test_a_time_that_counts_as_negative_is_none(life: int, holds: int) -> None:
    """RFC 2181, section 8."""
    query = build_query(7, HOST, A)
    assert parse_reply(query, reply_to(query, record(A, V4, life))).seconds == holds


def test_an_answer_that_was_cut_has_nothing_to_go_by() -> None:
    query = build_query(7, HOST, A)
    found = parse_reply(query, reply_to(query, record(A, V4), flags=0x8380))
    assert (found.addresses, found.seconds, found.cut) == ((), None, True)


def test_name_servers_are_those_of_the_system(tmp_path: pathlib.Path) -> None:
    (tmp_path / "resolv.conf").write_text(
        "# nameserver 192.0.2.9\nnameserver 192.0.2.1\nnameserver\noptions nameserver x\nnameserver ::1\n"
    )
    assert read_name_servers(str(tmp_path / "resolv.conf")) == (("192.0.2.1", 53), ("::1", 53))
    assert read_name_servers(str(tmp_path / "gone")) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda query, reply: b"xx" + reply[2:],
        lambda query, reply: reply[:-1],
        lambda query, reply: b"",
        lambda query, reply: query,
        lambda query, reply: reply_to(build_query(7, OTHER, A), record(A, V4)),
        lambda query, reply: reply_to(build_query(7, HOST, AAAA), record(A, V4)),
    ],
)
def test_what_is_no_answer_is_told_apart(wrong: Callable[[bytes, bytes], bytes]) -> None:
    query = build_query(7, HOST, A)
    with pytest.raises(ValueError, match="the response "):
        parse_reply(query, wrong(query, reply_to(query, record(A, V4))))


@pytest.mark.parametrize("name", ["", ".", "a..b", "x" * 64, ".".join(["x" * 50] * 6)])
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    with pytest.raises(ValueError, match=r"name|label"):
        build_query(1, name, A)


# -- lookups ---------------------------------------------------------------------------------------------------------------


class NameServer:
    """A name server on UDP and TCP. `records` by name and type; a name that it has not does not exist."""

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
        name, at = "", 12
        while length := query[at]:
            name += query[at + 1 : at + 1 + length].decode() + "."
            at += 1 + length
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        name = name.removesuffix(".")
        known = any(n == name for n, _ in self.records)
        return reply_to(query, *self.records.get((name, kind), ()), flags=self.flags if known else 0x8183)

    def stop(self) -> None:
        self.udp.close()
        self.tcp.close()


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    made = NameServer()
    await made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("cut", [False, True])
async def test_a_name_has_the_addresses_of_both_families(server: NameServer, cut: bool) -> None:
    """What does not fit into a datagram is asked for over TCP."""
    server.cut = cut
    server.records = {
        (HOST, A): [record(A, V4, 90)],
        (HOST, AAAA): [record(AAAA, V6, 80)],
        (OTHER, A): [record(A, V4, 70)],
    }
    names = NameServers((server.address,), 5)
    assert await names.look_up(HOST) == ResolvedName(("192.0.2.1", "2001:db8::1"), 80)
    assert await names.look_up(OTHER) == ResolvedName(("192.0.2.1",), 70)


async def test_the_next_server_is_asked_where_one_does_not_answer(server: NameServer) -> None:
    server.records = {(HOST, A): [record(A, V4)]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()
    assert (await NameServers((nobody, server.address), 5).look_up(HOST)).addresses == ("192.0.2.1",)


@pytest.mark.parametrize(
    ("name", "flags", "says"),
    [("gone.example.com", 0x8180, "does not exist"), (HOST, 0x8182, "code 2"), ("a..b", 0x8180, "not a valid name")],
)
async def test_a_name_without_addresses_says_why(server: NameServer, name: str, flags: int, says: str) -> None:
    server.records, server.flags = {(HOST, A): []}, flags
    with pytest.raises(LookupFailed, match=says):
        await NameServers((server.address,), 5).look_up(name)


async def test_without_servers_nothing_is_found() -> None:
    with pytest.raises(LookupFailed, match="no name servers"):
        await NameServers(read_name_servers("/nowhere"), 5).look_up(HOST)


# -- following -------------------------------------------------------------------------------------------------------------


class Mesher:
    """A mesh whose gateways are followed. `answers` by name; `slept` are the seconds of each wait, which `wake` ends."""

    def __init__(self) -> None:
        self.mesh, self.problems = Mesh(), ProblemStore(lambda _: None)
        self.answers: dict[str, ResolvedName | Exception] = {}
        self.asked: list[str] = []
        self.slept: list[float] = []
        self._waking = asyncio.Event()
        self.batch = Batch(self.mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), self._committed)
        self.names = GatewayNames(self.mesh, self.batch, self, self.problems, sleep=self._sleep)

    def _committed(self, commit: Commit) -> None:
        self.names.reached(commit.hit)

    async def look_up(self, name: str) -> ResolvedName:
        self.asked.append(name)
        answer = self.answers.get(name, LookupFailed("down"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
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
        """A network for each name, with a gateway of that address."""
        plain: Mapping[str, Any] = {
            "networks": {n: {"gateways": [{"address": a, "port": 15443}]} for n, a in gateways.items()}
        }
        self.batch.put([("MeshConfig", "networks", msgspec.convert(plain, MeshNetworks))])
        self.batch.flush()

    def gateways(self) -> list[str]:
        return [g.address for g in network_gateways(self.mesh).gateways]


async def test_a_gateway_is_at_its_addresses_once_they_are_known_and_moves_with_them() -> None:
    made = Mesher()
    made.answers[HOST] = ResolvedName(("192.0.2.1", "192.0.2.2"), 90)
    made.set(net=HOST, other="192.0.2.9")
    assert made.gateways() == ["192.0.2.9"]
    assert unresolved_gateways(made.mesh) == (NetworkGateway(HOST, 15443, "net"),)
    await made.names.start()
    await made.settle()
    assert made.gateways() == ["192.0.2.1", "192.0.2.2", "192.0.2.9"]
    assert network_gateways(made.mesh).scale == 2
    assert unresolved_gateways(made.mesh) == ()
    made.answers[HOST] = ResolvedName(("192.0.2.3",), 90)
    await made.wake()
    assert made.gateways() == ["192.0.2.3", "192.0.2.9"]
    await made.names.stop()


@pytest.mark.parametrize(("seconds", "slept"), [(1, 30), (90, 90), (10**6, 3600)])
async def test_a_name_is_looked_up_again_when_its_records_end_within_bounds(seconds: float, slept: float) -> None:
    made = Mesher()
    made.answers[HOST] = ResolvedName(("192.0.2.1",), seconds)
    made.set(net=HOST)
    await made.names.start()
    await made.settle()
    assert made.slept == [slept]
    await made.names.stop()


async def test_the_last_addresses_stay_where_a_name_cannot_be_looked_up() -> None:
    made = Mesher()
    made.answers[HOST] = ResolvedName(("192.0.2.1",), 90)
    made.set(net=HOST)
    await made.names.start()
    await made.settle()
    made.answers[HOST] = LookupFailed("down")
    await made.wake()
    assert made.gateways() == ["192.0.2.1"]
    (problem,) = made.problems
    assert problem.code == "gateway-not-resolved"
    assert "still using 192.0.2.1" in problem.message
    assert made.slept[-1] == 30
    made.answers[HOST] = ResolvedName(("192.0.2.1",), 90)
    await made.wake()
    assert list(made.problems) == []
    await made.names.stop()


async def test_an_equal_answer_changes_nothing() -> None:
    made = Mesher()
    made.answers[HOST] = ResolvedName(("192.0.2.1",), 90)
    made.set(net=HOST)
    await made.names.start()
    await made.settle()
    before = network_gateways(made.mesh)
    await made.wake()
    assert made.asked == [HOST, HOST]
    assert network_gateways(made.mesh) is before
    await made.names.stop()


async def test_names_come_and_go_with_the_configuration() -> None:
    made = Mesher()
    made.answers = {HOST: ResolvedName(("192.0.2.1",), 90)}
    await made.names.start()
    made.set(net=HOST, far=OTHER)
    await made.settle()
    assert made.gateways() == ["192.0.2.1"]
    assert [p.code for p in made.problems] == ["gateway-not-resolved"]
    made.set(net="192.0.2.7")
    await made.settle()
    assert made.gateways() == ["192.0.2.7"]
    assert list(made.problems) == []
    assert made.mesh.resolved_hosts.peek(HOST) is None
    await made.names.stop()
