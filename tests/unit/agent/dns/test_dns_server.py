"""DNS answers for names of the mesh, and forwarding of the others."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from google.protobuf import any_pb2

from pilot.agent.dns.dns_message import (
    AAAA,
    A,
)
from pilot.agent.dns.dns_server import DnsServer, Resolvers, parse_resolv_conf
from pilot.agent.dns.lookup_table import NAME_TABLE, LookupTable
from pilot.lib.start_error import StartError
from testing.mesh.objects import at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy
from tests.unit.agent.dns.test_dns_message import parse_answer, query
from tests.unit.agent.dns.test_lookup_table import table

SERVICE, TEXT = 33, 16
TRIES = 50
"""Number of ports to try. A port that is free for UDP may be in use for TCP by another test."""


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
