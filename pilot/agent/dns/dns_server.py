"""The DNS server: resolves the mesh's names and forwards other queries to the pod's resolvers."""

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
    MAX_BYTES,
    SERVER_FAILURE,
    A,
    build_answer,
    build_error,
    parse_query,
    truncate,
)
from pilot.agent.dns.lookup_table import LookupTable
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError

RESOLV_CONF = "/etc/resolv.conf"
PORT = 53
IDLE_SECONDS = 10.0
MAX_CONCURRENT = 1000
"""Maximum number of concurrent queries. UDP queries in excess of it are dropped, as an overloaded resolver does."""
_log = scope("dns")


class DnsObserver(Protocol):
    """Receives the events that metrics count."""

    def dns_query_received(self) -> None: ...
    def dns_query_forwarded(self) -> None: ...
    def dns_forward_failed(self) -> None: ...


class Resolvers(NamedTuple):
    """Addresses of upstream DNS servers, and search suffixes."""

    servers: tuple[tuple[str, int], ...]
    search: tuple[str, ...]


def parse_resolv_conf(text: str) -> Resolvers:
    """Return the servers and search suffixes in a resolv.conf file. The last search line wins."""
    servers, search = list[tuple[str, int]](), tuple[str, ...]()
    for line in text.splitlines():
        keyword, *values = line.split() or [""]
        if keyword == "nameserver" and values:
            servers.append((values[0], PORT))
        elif keyword in ("search", "domain"):
            search = tuple(values)
    return Resolvers(tuple(servers), search)


def read_resolvers(path: str = RESOLV_CONF) -> Resolvers:
    """Return the servers and search suffixes in the pod's resolv.conf, or empty ones if the file cannot be read."""
    try:
        return parse_resolv_conf(pathlib.Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return Resolvers((), ())


class DnsServer:
    """A DNS server on UDP and TCP. It forwards all queries until the lookup table is populated."""

    def __init__(
        self, table: LookupTable, servers: Sequence[tuple[str, int]], forward_timeout: float, observer: DnsObserver
    ) -> None:
        self._table, self._servers, self._forward_timeout, self._observer = table, servers, forward_timeout, observer
        self._active = 0
        self._stack = contextlib.AsyncExitStack()
        self.address: tuple[str, int] = ("", 0)

    async def start(self, host: str, port: int) -> None:
        """Listen on all addresses of a host. Raises StartError."""
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            for *_, address in dict.fromkeys(addresses):
                await self._listen(loop, str(address[0]), port)
        except OSError as error:
            await self.stop()
            raise StartError(f"cannot start the DNS server on {host}:{port}: {error.strerror or error}") from error

    async def _listen(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        udp, _ = await loop.create_datagram_endpoint(lambda: _UdpServer(self), (host, port))
        self._stack.callback(udp.close)
        self.address = udp.get_extra_info("sockname")[:2]
        tcp = await asyncio.start_server(self._serve_tcp, host, self.address[1])
        self._stack.callback(tcp.close)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def respond(self, message: bytes, udp: bool) -> bytes:
        """Return the response to a message, or b"" if no response is possible."""
        self._observer.dns_query_received()
        try:
            question = parse_query(message)
        except ValueError:
            return build_error(message, FORMAT_ERROR)
        limit = question.max_size if udp else MAX_BYTES
        if question.type in (A, AAAA) and (addresses := self._table.find(question.name)) is not None:
            return build_answer(question, random.sample(addresses, len(addresses)), limit)
        response = await self._forward(message, udp)
        return truncate(response, limit) if response else build_error(message, SERVER_FAILURE)

    @contextlib.contextmanager
    def track(self) -> Iterator[None]:
        """Count a query as active while the context is open."""
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    @property
    def is_overloaded(self) -> bool:
        return self._active >= MAX_CONCURRENT

    async def _forward(self, message: bytes, udp: bool) -> bytes:
        """Return the response of the first server that sends one, or b"" if none does."""
        self._observer.dns_query_forwarded()
        for server in self._servers:
            try:
                async with asyncio.timeout(self._forward_timeout):
                    return await (_query_udp if udp else _query_tcp)(server, message)
            except (OSError, asyncio.IncompleteReadError) as error:  # TimeoutError is an OSError
                _log.debug("DNS server %s did not respond: %s", server[0], error)
        self._observer.dns_forward_failed()
        return b""

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to the queries of one connection, in order."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await _read_message(reader)
                with self.track():
                    response = await self.respond(message, udp=False)
                if not response:
                    return
                writer.write(_length_prefixed(response))
                await writer.drain()


class _UdpServer(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server, self._tasks = server, set[asyncio.Task[None]]()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.DatagramTransport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self._server.is_overloaded:
            task = asyncio.ensure_future(self._reply(data, addr))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reply(self, data: bytes, addr: tuple[str, int]) -> None:
        with self._server.track():
            response = await self._server.respond(data, udp=True)
        if response and not self._transport.is_closing():
            self._transport.sendto(response, addr)


class _UdpClient(asyncio.DatagramProtocol):
    """Receives the first datagram with the ID of the query."""

    def __init__(self, query_id: bytes) -> None:
        self._query_id = query_id
        self.response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if data[:2] == self._query_id and not self.response.done():
            self.response.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(exc)


async def _query_udp(server: tuple[str, int], message: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(lambda: _UdpClient(message[:2]), remote_addr=server)
    try:
        transport.sendto(message)
        return await protocol.response
    finally:
        transport.close()


async def _query_tcp(server: tuple[str, int], message: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    with contextlib.closing(writer):
        writer.write(_length_prefixed(message))
        await writer.drain()
        return await _read_message(reader)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">H", await reader.readexactly(2))
    return await reader.readexactly(size)


def _length_prefixed(message: bytes) -> bytes:
    return struct.pack(">H", len(message)) + message
