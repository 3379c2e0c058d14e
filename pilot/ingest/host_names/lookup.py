"""DNS client that returns the addresses of a name and their time to live (TTL)."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from pilot.ingest.host_names.message import AAAA, A, Reply, build_query, parse_reply

RESOLV_CONF, PORT = "/etc/resolv.conf", 53
_NO_SUCH_NAME = 3


class LookupFailed(Exception):
    """A name has no addresses, or no name server answered. Users see the message."""


class ResolvedName(NamedTuple):
    """The sorted addresses of a name, and their TTL in seconds."""

    addresses: tuple[str, ...]
    seconds: float


class NameServers:
    """A list of name servers, which are queried in order until one answers. Each has `seconds` to respond."""

    def __init__(self, servers: Sequence[tuple[str, int]], seconds: float) -> None:
        self._servers, self._seconds = servers, seconds

    async def look_up(self, name: str) -> ResolvedName:
        """Return the IPv4 and IPv6 addresses of a name. Raise LookupFailed if there are none."""
        replies = await asyncio.gather(*(self._query(name, kind) for kind in (A, AAAA)), return_exceptions=True)
        failures = [reply for reply in replies if isinstance(reply, BaseException)]
        answered = [reply for reply in replies if isinstance(reply, Reply)]
        addresses = sorted({address for reply in answered for address in reply.addresses})
        if not addresses:
            nothing = (
                "the name does not exist"
                if any(r.code == _NO_SUCH_NAME for r in answered)
                else "the name has no address"
            )
            raise LookupFailed(str(failures[0]) if failures else nothing)
        return ResolvedName(
            tuple(addresses), min(reply.seconds for reply in answered if reply.addresses and reply.seconds is not None)
        )

    async def _query(self, name: str, kind: int) -> Reply:
        try:
            query = build_query(random.SystemRandom().randrange(1 << 16), name, kind)
        except ValueError as error:
            raise LookupFailed(str(error)) from error
        failure = "no name servers are configured"
        for server in self._servers:
            try:
                async with asyncio.timeout(self._seconds):
                    reply = parse_reply(query, await _query_udp(server, query))
                    if reply.cut:
                        reply = parse_reply(query, await _query_tcp(server, query))
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:  # TimeoutError is an OSError
                failure = f"name server {server[0]} does not respond: {str(error) or type(error).__name__}"
                continue
            if reply.code in (0, _NO_SUCH_NAME):
                return reply
            failure = f"name server {server[0]} responds with code {reply.code}"
        raise LookupFailed(failure)


def read_name_servers(path: str = RESOLV_CONF) -> tuple[tuple[str, int], ...]:
    """Return the name servers in a resolv.conf file, or an empty tuple if the file cannot be read."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    words = (line.split() for line in text.splitlines())
    return tuple((rest[1], PORT) for rest in words if len(rest) > 1 and rest[0] == "nameserver")


class _Once(asyncio.DatagramProtocol):
    """Waits for one datagram with the ID of the query, and ignores all others."""

    def __init__(self, number: bytes) -> None:
        self._number = number
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if data[:2] == self._number and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


async def _query_udp(server: tuple[str, int], query: bytes) -> bytes:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Once(query[:2]), remote_addr=server
    )
    try:
        transport.sendto(query)
        return await protocol.answer
    finally:
        transport.close()


async def _query_tcp(server: tuple[str, int], query: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    with contextlib.closing(writer):
        writer.write(struct.pack(">H", len(query)) + query)
        await writer.drain()
        (size,) = struct.unpack(">H", await reader.readexactly(2))
        return await reader.readexactly(size)
