"""Answers the application's questions for names: those of the mesh from the name table, others by asking the pod's own resolvers."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from pilot.agent.dns.dns_message import (
    AAAA,
    FORMAT_ERROR,
    LARGEST,
    SERVER_FAILURE,
    A,
    build_answer,
    build_error,
    cut,
    parse_query,
)
from pilot.agent.dns.lookup_table import LookupTable
from pilot.lib.log import scope
from pilot.lib.start_error import StartError

RESOLV_CONF = "/etc/resolv.conf"
PORT = 53
IDLE_SECONDS = 10.0
MAX_CONCURRENT = 1000
"""Questions that are answered at once; further ones by UDP are dropped, as a resolver that is too busy does."""
_log = scope("dns")


class DnsObserver(Protocol):
    """What is counted."""

    def dns_asked(self) -> None: ...
    def dns_forwarded(self) -> None: ...
    def dns_failed(self) -> None: ...


class Resolvers(NamedTuple):
    """Addresses of other servers, and the suffixes that resolvers add to names."""

    servers: tuple[tuple[str, int], ...]
    search: tuple[str, ...]


def parse_resolv_conf(text: str) -> Resolvers:
    """Returns what a resolv.conf says; the last line of suffixes counts."""
    servers, search = list[tuple[str, int]](), tuple[str, ...]()
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver" and rest:
            servers.append((rest[0], PORT))
        elif word in ("search", "domain"):
            search = tuple(rest)
    return Resolvers(tuple(servers), search)


def read_resolvers(path: str = RESOLV_CONF) -> Resolvers:
    """Returns what the pod's resolv.conf says, nothing where there is none."""
    try:
        return parse_resolv_conf(pathlib.Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return Resolvers((), ())


class DnsServer:
    """One server on UDP and TCP. Until there is a table every question goes on to the other resolvers."""

    def __init__(
        self, table: LookupTable, servers: Sequence[tuple[str, int]], seconds: float, observer: DnsObserver
    ) -> None:
        self._table, self._servers, self._seconds, self._observer = table, servers, seconds, observer
        self._busy = 0
        self._stack = contextlib.AsyncExitStack()
        self.address: tuple[str, int] = ("", 0)

    async def start(self, host: str, port: int) -> None:
        """Serves at every address of a host. StartError where it cannot."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            for *_, where in dict.fromkeys(found):
                await self._listen(loop, str(where[0]), port)
        except OSError as error:
            await self.stop()
            raise StartError(f"names cannot be answered at {host}:{port}: {error.strerror or error}") from error

    async def _listen(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        udp, _ = await loop.create_datagram_endpoint(lambda: _Udp(self), (host, port))
        self._stack.callback(udp.close)
        self.address = udp.get_extra_info("sockname")[:2]
        tcp = await asyncio.start_server(self._converse, host, self.address[1])
        self._stack.callback(tcp.close)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def answer(self, message: bytes, udp: bool) -> bytes:
        """Returns the answer to a message; empty where none can be given."""
        self._observer.dns_asked()
        try:
            question = parse_query(message)
        except ValueError:
            return build_error(message, FORMAT_ERROR)
        limit = question.size if udp else LARGEST
        if question.type in (A, AAAA) and (addresses := self._table.find(question.name)) is not None:
            return build_answer(question, random.sample(addresses, len(addresses)), limit)
        answer = await self._forward(message, udp)
        return cut(answer, limit) if answer else build_error(message, SERVER_FAILURE)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Counts a question while it is answered."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    @property
    def full(self) -> bool:
        return self._busy >= MAX_CONCURRENT

    async def _forward(self, message: bytes, udp: bool) -> bytes:
        """Returns the answer of the first resolver that has one; empty where none has."""
        self._observer.dns_forwarded()
        for server in self._servers:
            try:
                async with asyncio.timeout(self._seconds):
                    return await (_ask_udp if udp else _ask_tcp)(server, message)
            except (OSError, asyncio.IncompleteReadError) as error:  # TimeoutError is an OSError
                _log.debug("the resolver %s does not answer: %s", server[0], error)
        self._observer.dns_failed()
        return b""

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers what comes on one connection, one question after the other."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await _read_framed(reader)
                with self.place():
                    answer = await self.answer(message, udp=False)
                if not answer:
                    return
                writer.write(_frame(answer))
                await writer.drain()


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server, self._tasks = server, set[asyncio.Task[None]]()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.DatagramTransport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self._server.full:
            task = asyncio.ensure_future(self._reply(data, addr))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reply(self, data: bytes, addr: tuple[str, int]) -> None:
        with self._server.place():
            answer = await self._server.answer(data, udp=True)
        if answer and not self._transport.is_closing():
            self._transport.sendto(answer, addr)


class _Once(asyncio.DatagramProtocol):
    """Waits for one datagram with the number of the question."""

    def __init__(self, number: bytes) -> None:
        self._number = number
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if data[:2] == self._number and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


async def _ask_udp(server: tuple[str, int], message: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(lambda: _Once(message[:2]), remote_addr=server)
    try:
        transport.sendto(message)
        return await protocol.answer
    finally:
        transport.close()


async def _ask_tcp(server: tuple[str, int], message: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    with contextlib.closing(writer):
        writer.write(_frame(message))
        await writer.drain()
        return await _read_framed(reader)


async def _read_framed(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">H", await reader.readexactly(2))
    return await reader.readexactly(size)


def _frame(message: bytes) -> bytes:
    return struct.pack(">H", len(message)) + message
