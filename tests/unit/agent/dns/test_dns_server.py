"""DNS answers for names of the mesh."""

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
"""Number of ports to try. A port that is free for UDP may be in use for TCP by another test."""


def query(name: str, kind: int = A, number: int = 7, size: int = 0) -> bytes:
    """Return a query as resolvers send it. `size` adds EDNS."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".")) + b"\0"
    edns = b"\0" + struct.pack(">HHIH", 41, size, 0, 0) if size else b""
    return (
        struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 1 if size else 0) + labels + struct.pack(">HH", kind, 1) + edns
    )


def parse_answer(answer: bytes) -> tuple[int, int, list[str]]:
    """Return the number, code and addresses of an answer, parsed independently."""
    number, flags, questions, answers, _, _ = struct.unpack_from(">HHHHHH", answer)
    assert flags & 0x8000
    offset = 12
    for _ in range(questions):
        while answer[offset]:
            offset += 1 + answer[offset]
        offset += 5
    addresses = []
    for _ in range(answers):
        assert answer[offset : offset + 2] == b"\xc0\x0c"
        kind, _, _, size = struct.unpack_from(">HHIH", answer, offset + 2)
        addresses.append(
            socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, answer[offset + 12 : offset + 12 + size])
        )
        offset += 12 + size
    assert offset == len(answer)
    return number, flags & 0xF, addresses


def table(search: tuple[str, ...] = (), **hosts: Any) -> LookupTable:
    names = nds_pb2.NameTable()
    names.table["books.shop.svc.cluster.local"].CopyFrom(
        nds_pb2.NameTable.NameInfo(
            ips=["10.96.0.1", "fd00::1"], registry="Kubernetes", shortname="books", namespace="shop"
        )
    )
    names.table["carts.other.svc.cluster.local"].CopyFrom(
        nds_pb2.NameTable.NameInfo(ips=["10.96.0.2"], registry="Kubernetes", shortname="carts", namespace="other")
    )
    names.table["far.shop.svc.elsewhere"].CopyFrom(
        nds_pb2.NameTable.NameInfo(ips=["10.96.0.3"], registry="Kubernetes", shortname="far", namespace="shop")
    )
    names.table["*.wild.example"].ips.append("240.0.0.1")
    names.table["Mixed.Example"].ips.extend(["bad", "240.0.0.2"])
    names.table["empty.example"].ips.append("bad")
    lookup_table = LookupTable("shop", "shop.svc.cluster.local", search)
    lookup_table.update([names.SerializeToString()])
    return lookup_table


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("books.shop.svc.cluster.local.", "10.96.0.1"),
        ("books.", "10.96.0.1"),
        ("books.shop.", "10.96.0.1"),
        ("books.shop.svc.", "10.96.0.1"),
        ("carts.other.", "10.96.0.2"),
        ("carts.", None),  # short names resolve in the local namespace
        ("far.", None),  # and only in the local domain
        ("far.shop.svc.elsewhere.", "10.96.0.3"),
        ("a.wild.example.", "240.0.0.1"),
        ("a.b.wild.example.", "240.0.0.1"),
        ("wild.example.", None),
        ("mixed.example.", "240.0.0.2"),
        ("empty.example.", None),
        ("unknown.", None),
    ],
)
def test_lookup_by_full_short_and_wildcard_names(name: str, first: str | None) -> None:
    addresses = table().find(name)
    assert (str(addresses[0]) if addresses else None) == first


def test_lookup_strips_search_domains() -> None:
    names = table(("shop.svc.cluster.local", "svc.cluster.local"))
    assert names.find("mixed.example.shop.svc.cluster.local.") == (ipaddress.ip_address("240.0.0.2"),)
    assert names.find("unknown.shop.svc.cluster.local.") is None


def test_invalid_table_is_rejected_and_the_old_one_stays() -> None:
    names = table()
    with pytest.raises(ValueError, match="invalid name table"):
        names.update([b"\xff"])
    names.update([])
    assert names.find("books.") is not None
    assert not LookupTable("shop", "").is_populated


def test_answer_holds_addresses_of_the_queried_family() -> None:
    for kind, address in ((A, "10.96.0.1"), (AAAA, "fd00::1")):
        question = parse_query(query("Books.Shop", kind))
        assert question.name == "books.shop."
        assert parse_answer(build_answer(question, (V4, V6), 512)) == (7, 0, [address])
    assert parse_answer(build_answer(parse_query(query("books", AAAA)), (V4,), 512)) == (7, 0, [])  # the name exists


def test_oversized_answer_is_truncated() -> None:
    addresses = tuple(ipaddress.ip_address(f"10.0.{number >> 8}.{number & 255}") for number in range(500))
    truncated = build_answer(parse_query(query("books")), addresses, 512)
    assert len(truncated) <= 512
    assert struct.unpack_from(">H", truncated, 2)[0] & 0x0200
    full = build_answer(parse_query(query("books", size=65000)), addresses, 65000)
    assert len(parse_answer(full)[2]) == 500
    assert parse_query(query("books", size=65000)).max_size == 65000
    assert truncate(full, 65000) == full
    cut = truncate(full, 512)
    assert struct.unpack_from(">HHHH", cut)[1:] == (struct.unpack_from(">H", full, 2)[0] | 0x0200, 1, 0)


def test_encoding_of_answers() -> None:
    question = query("a.b", AAAA)
    head, question_section = b"\0\7\x85\x80\0\1\0\1\0\0\0\0", question[12:]
    record = b"\xc0\x0c\0\x1c\0\1\0\0\0\x1e\0\x10" + V6.packed
    assert build_answer(parse_query(question), (V4, V6), 512) == head + question_section + record
    assert (
        build_answer(parse_query(question), (V6,), len(head + question_section + record))
        == head + question_section + record
    )
    assert (
        build_answer(parse_query(question), (V6,), len(head + question_section + record) - 1)
        == b"\0\7\x87\x80\0\1" + bytes(6) + question_section
    )
    non_recursive = question[:2] + bytes(2) + question[4:]  # without recursion desired
    assert build_answer(parse_query(non_recursive), (), 512) == b"\0\7\x84\x80\0\1" + bytes(6) + question_section
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
def test_parsing_of_queries(message: bytes, expected: DnsQuestion) -> None:
    assert parse_query(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        query("a")[:-1],
        query("a")[:13],
        b"\0\1\x80\0" + query("a")[4:],  # a response
        b"\0\1\1\0\0\2" + query("a")[6:],  # two questions
        query("a")[:2] + b"\x08\0" + query("a")[4:],  # an opcode other than query
        query("a")[:7] + b"\1" + query("a")[8:],  # with an answer
        query("a")[:9] + b"\1" + query("a")[10:],  # with an authority
        query("a", size=512)[:-9],  # truncated
        query("a")[:12] + b"\xc0\x0c\0\1\0\1",  # a compressed name
    ],
)
def test_invalid_query_is_rejected(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_query(message)


def test_parsing_of_resolv_conf() -> None:
    text = "# here\nnameserver 10.0.0.10\nnameserver fd00::10\nsearch a.b\nsearch shop.svc c\noptions ndots:5\n\nnameserver\n"
    assert parse_resolv_conf(text) == Resolvers((("10.0.0.10", 53), ("fd00::10", 53)), ("shop.svc", "c"))


class Counts:
    """Counts queries and forwards."""

    def __init__(self) -> None:
        self.received = self.forwarded = self.failed = 0

    def dns_query_received(self) -> None:
        self.received += 1

    def dns_query_forwarded(self) -> None:
        self.forwarded += 1

    def dns_forward_failed(self) -> None:
        self.failed += 1


class Resolver(asyncio.DatagramProtocol):
    """An upstream resolver. It replies with the ID, a mark and the question."""

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


async def start_dns_server(server: DnsServer) -> DnsServer:
    """Start a server on a free port. A port free for UDP may be in use for TCP, so try several."""
    for tries_left in reversed(range(TRIES)):
        try:
            await server.start("127.0.0.1", 0)
            break
        except StartError:
            if not tries_left:
                raise
    return server


async def ask_udp(server: DnsServer, message: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    response: asyncio.Future[bytes] = loop.create_future()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            response.set_result(data)

    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=server.address)
    transport.sendto(message)
    try:
        async with asyncio.timeout(20):
            return await response
    finally:
        transport.close()


async def ask_tcp(server: DnsServer, *messages: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_connection(*server.address)
    for message in messages:
        writer.write(struct.pack(">H", len(message)) + message)
    async with asyncio.timeout(20):
        responses = [await reader.readexactly(struct.unpack(">H", await reader.readexactly(2))[0]) for _ in messages]
    writer.close()
    return responses


async def test_mesh_names_are_answered_and_others_forwarded(resolver: tuple[str, int]) -> None:
    counts = Counts()
    server = await start_dns_server(DnsServer(table(), (resolver,), 5, counts))
    assert parse_answer(await ask_udp(server, query("books"))) == (7, 0, ["10.96.0.1"])
    assert counts.forwarded == 0
    for other in (query("elsewhere.example"), query("books", TEXT), query("books", SERVICE)):
        assert await ask_udp(server, other) == other[:2] + b"\x81\x80" + other[4:]
    assert (counts.received, counts.forwarded, counts.failed) == (4, 3, 0)
    responses = await ask_tcp(server, query("books"), query("elsewhere.example"))
    assert parse_answer(responses[0])[2] == ["10.96.0.1"]
    assert responses[1][2:4] == b"\x81\x80"
    await server.stop()


async def test_all_queries_are_forwarded_without_a_table(resolver: tuple[str, int]) -> None:
    server = await start_dns_server(DnsServer(LookupTable("shop", "shop.svc.cluster.local"), (resolver,), 5, Counts()))
    assert (await ask_udp(server, query("books")))[2:4] == b"\x81\x80"
    await server.stop()


async def test_query_without_resolvers_fails(resolver: tuple[str, int]) -> None:
    counts = Counts()
    server = await start_dns_server(DnsServer(table(), (), 5, counts))
    assert parse_answer(await ask_udp(server, query("elsewhere.example"))) == (7, 2, [])
    assert parse_answer(await ask_udp(server, b"\0\7no question")) == (7, 1, [])
    assert counts.failed == 1
    await server.stop()


async def test_unreachable_resolver_fails_over(resolver: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        unreachable = closed.getsockname()
    server = await start_dns_server(DnsServer(table(), (unreachable, resolver), 5, Counts()))
    assert (await ask_udp(server, query("elsewhere.example")))[2:4] == b"\x81\x80"
    await server.stop()


async def test_occupied_port_is_reported() -> None:
    first = await start_dns_server(DnsServer(table(), (), 5, Counts()))
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
async def test_names_of_the_control_plane_are_answered(name: str, kind: int, addresses: list[str]) -> None:
    """Resolve a dual-stack Service, a headless one, its StatefulSet pods and a ServiceEntry by full and short names."""
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
    lookup_table = LookupTable("b", "b.svc.cluster.local")
    lookup_table.update([any_pb2.Any.FromString(resource.any).value])
    server = await start_dns_server(DnsServer(lookup_table, (), 5, Counts()))
    _, code, resolved = parse_answer(await ask_udp(server, query(name, kind)))
    assert (code, sorted(resolved)) == (0, addresses)
    await server.stop()


@pytest.mark.parametrize("length", [20, 4, 0])
def test_truncation_keeps_header_and_question(length: int) -> None:
    question = query("books.shop.svc.cluster.local", number=9)
    head, name = struct.pack(">HHHHHH", 9, 0x8580, 1, 2, 3, 4), question[12:]
    message = head + name + bytes(length)
    assert truncate(message, len(message)) == message
    assert truncate(message, len(message) - 1) == struct.pack(">HHHHHH", 9, 0x8780, 1, 0, 0, 0) + name
    error = struct.pack(">HHHHHH", 9, 0x8182, 0, 1, 1, 1) + bytes(length)
    assert truncate(error, 11) == struct.pack(">HHHHHH", 9, 0x8382, 0, 0, 0, 0)
