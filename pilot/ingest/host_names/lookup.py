"""Asks name servers for the addresses of a name, and for how long they hold."""

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
    """A name has no addresses, or nobody could be asked; the text is for users."""


class ResolvedName(NamedTuple):
    """The addresses of a name, sorted, and the seconds that they hold."""

    addresses: tuple[str, ...]
    seconds: float


class NameServers:
    """Name servers, of which the first that answers counts; each has `seconds` for it."""

    def __init__(self, servers: Sequence[tuple[str, int]], seconds: float) -> None:
        self._servers, self._seconds = servers, seconds

    async def look_up(self, name: str) -> ResolvedName:
        """Returns the addresses of both families. LookupFailed where there are none."""
        replies = await asyncio.gather(*(self._ask(name, kind) for kind in (A, AAAA)), return_exceptions=True)
        failures = [reply for reply in replies if isinstance(reply, BaseException)]
        answered = [reply for reply in replies if isinstance(reply, Reply)]
        addresses = sorted({address for reply in answered for address in reply.addresses})
        if not addresses:
            nothing = "there is no such name" if any(r.code == _NO_SUCH_NAME for r in answered) else "it has no address"
            raise LookupFailed(str(failures[0]) if failures else nothing)
        return ResolvedName(
            tuple(addresses), min(reply.seconds for reply in answered if reply.addresses and reply.seconds is not None)
        )

    async def _ask(self, name: str, kind: int) -> Reply:
        try:
            query = build_query(random.SystemRandom().randrange(1 << 16), name, kind)
        except ValueError as error:
            raise LookupFailed(str(error)) from error
        failure = "there are no name servers"
        for server in self._servers:
            try:
                async with asyncio.timeout(self._seconds):
                    reply = parse_reply(query, await _ask_udp(server, query))
                    if reply.cut:
                        reply = parse_reply(query, await _ask_tcp(server, query))
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:  # TimeoutError is an OSError
                failure = f"the name server {server[0]} does not answer: {str(error) or type(error).__name__}"
                continue
            if reply.code in (0, _NO_SUCH_NAME):
                return reply
            failure = f"the name server {server[0]} answers with code {reply.code}"
        raise LookupFailed(failure)


def read_name_servers(path: str = RESOLV_CONF) -> tuple[tuple[str, int], ...]:
    """Returns the name servers of a resolv.conf; none where there is no such file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    words = (line.split() for line in text.splitlines())
    return tuple((rest[1], PORT) for rest in words if len(rest) > 1 and rest[0] == "nameserver")


class _Once(asyncio.DatagramProtocol):
    """Waits for one datagram with the number of the question; others are somebody else's."""

    def __init__(self, number: bytes) -> None:
        self._number = number
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if data[:2] == self._number and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc)


async def _ask_udp(server: tuple[str, int], query: bytes) -> bytes:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Once(query[:2]), remote_addr=server
    )
    try:
        transport.sendto(query)
        return await protocol.answer
    finally:
        transport.close()


async def _ask_tcp(server: tuple[str, int], query: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    with contextlib.closing(writer):
        writer.write(struct.pack(">H", len(query)) + query)
        await writer.drain()
        (size,) = struct.unpack(">H", await reader.readexactly(2))
        return await reader.readexactly(size)
