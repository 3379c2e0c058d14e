"""Names of the mesh, answered over DNS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from google.protobuf import any_pb2

from pilot.agent.dns.dns_message import (
    AAAA,
    FORMAT_ERROR,
    SERVER_FAILURE,
    A,
    DnsQuestion,
    build_answer,
    build_error,
    parse_query,
    truncate,
)
from pilot.agent.dns.dns_server import DnsServer, Resolvers, parse_resolv_conf
from pilot.agent.dns.lookup_table import NAME_TABLE, LookupTable
from pilot.lib.start_error import StartError
from protos import nds_pb2
from testing.mesh.objects import at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy

V4, V6 = ipaddress.ip_address("10.96.0.1"), ipaddress.ip_address("fd00::1")
SERVICE, TEXT = 33, 16
TRIES = 50
"""Ports that are tried: the one that is free for UDP may be taken for TCP by any connection of another test."""


def query(name: str, kind: int = A, number: int = 7, size: int = 0) -> bytes:
    """A query as resolvers send it; `size` adds EDNS."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".")) + b"\0"
    edns = b"\0" + struct.pack(">HHIH", 41, size, 0, 0) if size else b""
    return (
        struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 1 if size else 0) + labels + struct.pack(">HH", kind, 1) + edns
    )


def read(answer: bytes) -> tuple[int, int, list[str]]:
    """Number, code and addresses of an answer, as an independent reader of the records sees them."""
    number, flags, questions, answers, _, _ = struct.unpack_from(">HHHHHH", answer)
    assert flags & 0x8000
    at = 12
    for _ in range(questions):
        while answer[at]:
            at += 1 + answer[at]
        at += 5
    found = []
    for _ in range(answers):
        assert answer[at : at + 2] == b"\xc0\x0c"
        kind, _, _, size = struct.unpack_from(">HHIH", answer, at + 2)
        found.append(
            socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, answer[at + 12 : at + 12 + size])
        )
        at += 12 + size
    assert at == len(answer)
    return number, flags & 0xF, found


def table(search: tuple[str, ...] = (), **hosts: Any) -> LookupTable:
    made = nds_pb2.NameTable()
    made.table["books.shop.svc.cluster.local"].CopyFrom(
        nds_pb2.NameTable.NameInfo(
            ips=["10.96.0.1", "fd00::1"], registry="Kubernetes", shortname="books", namespace="shop"
        )
    )
    made.table["carts.other.svc.cluster.local"].CopyFrom(
        nds_pb2.NameTable.NameInfo(ips=["10.96.0.2"], registry="Kubernetes", shortname="carts", namespace="other")
    )
    made.table["far.shop.svc.elsewhere"].CopyFrom(
        nds_pb2.NameTable.NameInfo(ips=["10.96.0.3"], registry="Kubernetes", shortname="far", namespace="shop")
    )
    made.table["*.wild.example"].ips.append("240.0.0.1")
    made.table["Mixed.Example"].ips.extend(["bad", "240.0.0.2"])
    made.table["empty.example"].ips.append("bad")
    found = LookupTable("shop", "shop.svc.cluster.local", search)
    found.update([made.SerializeToString()])
    return found


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("books.shop.svc.cluster.local.", "10.96.0.1"),
        ("books.", "10.96.0.1"),
        ("books.shop.", "10.96.0.1"),
        ("books.shop.svc.", "10.96.0.1"),
        ("carts.other.", "10.96.0.2"),
        ("carts.", None),  # a short name is that of the own namespace
        ("far.", None),  # nor of another domain
        ("far.shop.svc.elsewhere.", "10.96.0.3"),
        ("a.wild.example.", "240.0.0.1"),
        ("a.b.wild.example.", "240.0.0.1"),
        ("wild.example.", None),
        ("mixed.example.", "240.0.0.2"),
        ("empty.example.", None),
        ("unknown.", None),
    ],
)
def test_names_are_found_whole_short_and_under_wildcards(name: str, first: str | None) -> None:
    found = table().find(name)
    assert (str(found[0]) if found else None) == first


def test_a_name_with_the_suffix_of_the_resolver_is_found_at_once() -> None:
    names = table(("shop.svc.cluster.local", "svc.cluster.local"))
    assert names.find("mixed.example.shop.svc.cluster.local.") == (ipaddress.ip_address("240.0.0.2"),)
    assert names.find("unknown.shop.svc.cluster.local.") is None


def test_a_table_that_is_none_is_refused_and_the_old_one_stays() -> None:
    names = table()
    with pytest.raises(ValueError, match="invalid name table"):
        names.update([b"\xff"])
    names.update([])
    assert names.find("books.") is not None
    assert not LookupTable("shop", "").is_populated


def test_an_answer_has_the_addresses_of_the_family_that_is_asked_for() -> None:
    for kind, address in ((A, "10.96.0.1"), (AAAA, "fd00::1")):
        question = parse_query(query("Books.Shop", kind))
        assert question.name == "books.shop."
        assert read(build_answer(question, (V4, V6), 512)) == (7, 0, [address])
    assert read(build_answer(parse_query(query("books", AAAA)), (V4,), 512)) == (7, 0, [])  # the name exists


def test_an_answer_that_does_not_fit_is_marked_as_cut() -> None:
    addresses = tuple(ipaddress.ip_address(f"10.0.{number >> 8}.{number & 255}") for number in range(500))
    short = build_answer(parse_query(query("books")), addresses, 512)
    assert len(short) <= 512
    assert struct.unpack_from(">H", short, 2)[0] & 0x0200
    whole = build_answer(parse_query(query("books", size=65000)), addresses, 65000)
    assert len(read(whole)[2]) == 500
    assert parse_query(query("books", size=65000)).max_size == 65000
    assert truncate(whole, 65000) == whole
    headless = truncate(whole, 512)
    assert struct.unpack_from(">HHHH", headless)[1:] == (struct.unpack_from(">H", whole, 2)[0] | 0x0200, 1, 0)


def test_answers_byte_for_byte() -> None:
    question = query("a.b", AAAA)
    head, asked = b"\0\7\x85\x80\0\1\0\1\0\0\0\0", question[12:]
    record = b"\xc0\x0c\0\x1c\0\1\0\0\0\x1e\0\x10" + V6.packed
    assert build_answer(parse_query(question), (V4, V6), 512) == head + asked + record
    assert build_answer(parse_query(question), (V6,), len(head + asked + record)) == head + asked + record
    assert (
        build_answer(parse_query(question), (V6,), len(head + asked + record) - 1)
        == b"\0\7\x87\x80\0\1" + bytes(6) + asked
    )
    quiet = question[:2] + bytes(2) + question[4:]  # of who does not want recursion
    assert build_answer(parse_query(quiet), (), 512) == b"\0\7\x84\x80\0\1" + bytes(6) + asked
    assert build_error(question, SERVER_FAILURE) == b"\0\7\x80\2" + bytes(8)
    assert build_error(question[:2], FORMAT_ERROR) == b"\0\7\x80\1" + bytes(8)
    assert build_error(question[:1], FORMAT_ERROR) == b""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            query("A.bC"),
            DnsQuestion(7, 0x100, "a.bc.", A, query("a.bc")[12:].replace(b"a", b"A").replace(b"bc", b"bC"), 512),
        ),
        (query("a")[:12] + b"\0\0\x1c\0\1", DnsQuestion(7, 0x100, ".", AAAA, b"\0\0\x1c\0\1", 512)),
        (query("a", size=1232), DnsQuestion(7, 0x100, "a.", A, query("a")[12:], 1232)),
        (query("a", size=1), DnsQuestion(7, 0x100, "a.", A, query("a")[12:], 512)),
        (query("x" * 63), DnsQuestion(7, 0x100, "x" * 63 + ".", A, query("x" * 63)[12:], 512)),
    ],
)
def test_questions_are_read_whole(message: bytes, expected: DnsQuestion) -> None:
    assert parse_query(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        query("a")[:-1],
        query("a")[:13],
        b"\0\1\x80\0" + query("a")[4:],  # an answer
        b"\0\1\1\0\0\2" + query("a")[6:],  # two questions
        query("a")[:2] + b"\x08\0" + query("a")[4:],  # an operation that is no query
        query("a")[:7] + b"\1" + query("a")[8:],  # with an answer
        query("a")[:9] + b"\1" + query("a")[10:],  # with an authority
        query("a", size=512)[:-9],  # without its end
        query("a")[:12] + b"\xc0\x0c\0\1\0\1",  # a compressed name
    ],
)
def test_what_is_no_question_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_query(message)


def test_resolvers_are_those_of_resolv_conf() -> None:
    text = "# here\nnameserver 10.0.0.10\nnameserver fd00::10\nsearch a.b\nsearch shop.svc c\noptions ndots:5\n\nnameserver\n"
    assert parse_resolv_conf(text) == Resolvers((("10.0.0.10", 53), ("fd00::10", 53)), ("shop.svc", "c"))


class Counts:
    """Counts what the server observes."""

    def __init__(self) -> None:
        self.asked = self.forwarded = self.failed = 0

    def dns_query_received(self) -> None:
        self.asked += 1

    def dns_query_forwarded(self) -> None:
        self.forwarded += 1

    def dns_forward_failed(self) -> None:
        self.failed += 1


class Resolver(asyncio.DatagramProtocol):
    """Another server: answers every question with its first two bytes, a mark and the question."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(b"\0\0stray", addr)
        self.transport.sendto(data[:2] + b"\x81\x80" + data[4:], addr)


@pytest.fixture
async def resolver() -> AsyncIterator[tuple[str, int]]:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readexactly(struct.unpack(">H", await reader.readexactly(2))[0])
        writer.write(struct.pack(">H", len(data)) + data[:2] + b"\x81\x80" + data[4:])
        await writer.drain()
        writer.close()

    for _ in range(TRIES):
        udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(Resolver, ("127.0.0.1", 0))
        address = udp.get_extra_info("sockname")
        try:
            tcp = await asyncio.start_server(converse, *address)
            break
        except OSError:
            udp.close()
    yield address
    udp.close()
    tcp.close()


async def started(server: DnsServer) -> DnsServer:
    """A server at a port that was free for UDP when it took it; where somebody else has it for TCP, at another one."""
    for left in reversed(range(TRIES)):
        try:
            await server.start("127.0.0.1", 0)
            break
        except StartError:
            if not left:
                raise
    return server


async def ask_udp(server: DnsServer, message: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            answer.set_result(data)

    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=server.address)
    transport.sendto(message)
    try:
        async with asyncio.timeout(20):
            return await answer
    finally:
        transport.close()


async def ask_tcp(server: DnsServer, *messages: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_connection(*server.address)
    for message in messages:
        writer.write(struct.pack(">H", len(message)) + message)
    async with asyncio.timeout(20):
        found = [await reader.readexactly(struct.unpack(">H", await reader.readexactly(2))[0]) for _ in messages]
    writer.close()
    return found


async def test_names_of_the_mesh_are_answered_and_others_go_on(resolver: tuple[str, int]) -> None:
    counts = Counts()
    server = await started(DnsServer(table(), (resolver,), 5, counts))
    assert read(await ask_udp(server, query("books"))) == (7, 0, ["10.96.0.1"])
    assert counts.forwarded == 0
    for other in (query("elsewhere.example"), query("books", TEXT), query("books", SERVICE)):
        assert await ask_udp(server, other) == other[:2] + b"\x81\x80" + other[4:]
    assert (counts.asked, counts.forwarded, counts.failed) == (4, 3, 0)
    answers = await ask_tcp(server, query("books"), query("elsewhere.example"))
    assert read(answers[0])[2] == ["10.96.0.1"]
    assert answers[1][2:4] == b"\x81\x80"
    await server.stop()


async def test_without_a_table_every_question_goes_on(resolver: tuple[str, int]) -> None:
    server = await started(DnsServer(LookupTable("shop", "shop.svc.cluster.local"), (resolver,), 5, Counts()))
    assert (await ask_udp(server, query("books")))[2:4] == b"\x81\x80"
    await server.stop()


async def test_a_question_that_nobody_answers_fails(resolver: tuple[str, int]) -> None:
    counts = Counts()
    server = await started(DnsServer(table(), (), 5, counts))
    assert read(await ask_udp(server, query("elsewhere.example"))) == (7, 2, [])
    assert read(await ask_udp(server, b"\0\7no question")) == (7, 1, [])
    assert counts.failed == 1
    await server.stop()


async def test_the_next_resolver_is_asked_when_the_first_is_away(resolver: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        gone = closed.getsockname()
    server = await started(DnsServer(table(), (gone, resolver), 5, Counts()))
    assert (await ask_udp(server, query("elsewhere.example")))[2:4] == b"\x81\x80"
    await server.stop()


async def test_a_port_that_is_taken_is_said_in_a_sentence() -> None:
    first = await started(DnsServer(table(), (), 5, Counts()))
    with pytest.raises(StartError, match=r"cannot start the DNS server on 127\.0\.0\.1:"):
        await DnsServer(table(), (), 5, Counts()).start(*first.address)
    await first.stop()


@pytest.mark.parametrize(
    ("name", "kind", "addresses"),
    [
        ("api.b.svc.cluster.local", A, ["10.96.0.1"]),
        ("api", A, ["10.96.0.1"]),
        ("api.b.svc", AAAA, ["fd00:96::1"]),
        ("peers", A, ["10.1.0.2", "10.1.0.3"]),
        ("peers.b", AAAA, ["fd00::2"]),
        ("peers-0.peers.b.svc.cluster.local", A, ["10.1.0.2"]),
        ("peers-0.peers", AAAA, ["fd00::2"]),
        ("peers-1.peers.b", A, ["10.1.0.3"]),
        ("peers-1.peers.b", AAAA, []),
        ("x.example.com", A, ["240.1.0.1"]),
    ],
)
async def test_what_the_control_plane_says_is_answered(name: str, kind: int, addresses: list[str]) -> None:
    """A Service of both families, a headless one, the pods of its StatefulSet, and a ServiceEntry, by whole and short names."""
    port = "{name: tcp, port: 90}"
    ports = f"ports: [{port}]"
    world = World(environ={"ISTIO_DUAL_STACK": "true"})
    world.apply_objects(
        make("Service", "api", f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00:96::1'], {ports}}}", "b"),
        make("Service", "peers", f"{{clusterIP: None, {ports}}}", "b"),
        endpoint_slice(
            "peers",
            *(at(f"10.1.0.{n + 2}", f"peers-{n}", namespace="b") for n in (0, 1)),
            namespace="b",
            ports=f"[{port}]",
        ),
        endpoint_slice("peers", at("fd00::2", "peers-0", namespace="b"), namespace="b", ports=f"[{port}]", name="six")
        | {"addressType": "IPv6"},
        *(
            pod(f"peers-{n}", ip, "b", f"{{subdomain: peers, hostname: peers-{n}}}")
            for n, ip in enumerate(("10.1.0.2,fd00::2", "10.1.0.3"))
        ),
        make(
            "ServiceEntry",
            "x",
            "{hosts: [x.example.com], addresses: [240.1.0.1], resolution: DNS, ports: [{number: 80, name: http}]}",
            "b",
        ),
    )
    app = msgspec.structs.replace(
        proxy("sidecar", "web-0", "b", "10.9.0.1", {}, DNS_CAPTURE="true"), ips=("10.9.0.1", "fd00::9")
    )
    (resource,) = world.resources(world.connect(app))[NAME_TABLE].values()
    told = LookupTable("b", "b.svc.cluster.local")
    told.update([any_pb2.Any.FromString(resource.any).value])
    server = await started(DnsServer(told, (), 5, Counts()))
    _, code, found = read(await ask_udp(server, query(name, kind)))
    assert (code, sorted(found)) == (0, addresses)
    await server.stop()


@pytest.mark.parametrize("length", [20, 4, 0])
def test_an_answer_that_is_too_long_for_udp_is_its_question_marked_as_cut(length: int) -> None:
    question = query("books.shop.svc.cluster.local", number=9)
    head, name = struct.pack(">HHHHHH", 9, 0x8580, 1, 2, 3, 4), question[12:]
    whole = head + name + bytes(length)
    assert truncate(whole, len(whole)) == whole
    assert truncate(whole, len(whole) - 1) == struct.pack(">HHHHHH", 9, 0x8780, 1, 0, 0, 0) + name
    error = struct.pack(">HHHHHH", 9, 0x8182, 0, 1, 1, 1) + bytes(length)
    assert truncate(error, 11) == struct.pack(">HHHHHH", 9, 0x8382, 0, 0, 0, 0)
