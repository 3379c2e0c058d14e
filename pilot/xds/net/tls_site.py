"""TLS connections of an HTTP application, with a limit for handshakes.

A handshake uses about 50 kB of memory, and servers of asyncio do not limit their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from pilot.lib.logging.log import scope
from pilot.xds.net.acceptor import Acceptor
from pilot.xds.net.listen_address import Address, format_host
from pilot.xds.net.listening_sockets import BACKLOG, listening_sockets
from pilot.xds.net.plaintext_peer import refuse_plaintext

MAX_HANDSHAKES = 256
"""Maximum number of concurrent handshakes. Beyond that, the oldest one of the source address with the most is ended."""
HANDSHAKE_TIMEOUT = 10.0
"""Number of seconds within which a peer must complete the handshake. API servers wait that long for a webhook."""
_log = scope("http")


class TlsSite(web.BaseSite):
    """A site of an aiohttp runner that serves TLS at an address."""

    def __init__(self, runner: web.AppRunner, address: Address, tls: ssl.SSLContext) -> None:
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._app_runner, self._address, self._tls = runner, address, tls

    @property
    def name(self) -> str:
        return f"https://{self._address}"

    async def start(self) -> None:
        """Start accepting connections. Raise OSError if the address is unavailable."""
        await super().start()
        server: Any = TlsServer(self._app_runner.server, await listening_sockets(self._address), self._tls)
        self._server = server


class TlsServer:
    """Accepts connections at sockets, and serves each with a protocol that `make_protocol` returns."""

    def __init__(self, make_protocol: Any, sockets: list[socket.socket], tls: ssl.SSLContext) -> None:
        self._make_protocol: Callable[[], asyncio.BaseProtocol] = make_protocol
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], str] = {}  # source addresses, oldest handshake first
        self._counts: Counter[str] = Counter()
        self._acceptor = Acceptor(sockets, self._receive, _log)

    def close(self) -> None:
        """Stop accepting connections, and end unfinished handshakes."""
        self._acceptor.close()
        for handshake in list(self._handshakes):
            handshake.cancel()

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets, which aiohttp reads."""
        return self._acceptor.sockets

    def _receive(self, connection: socket.socket, peer: Any) -> None:
        handshake = asyncio.get_running_loop().create_task(self._handshake(connection, format_host(peer)))
        self._handshakes[handshake] = peer[0]
        self._counts[peer[0]] += 1
        handshake.add_done_callback(self._forget)
        if len(self._handshakes) > MAX_HANDSHAKES:
            self._evict()

    def _evict(self) -> None:
        host = max(self._counts, key=lambda host: self._counts[host])
        handshake = next(handshake for handshake, other in self._handshakes.items() if other == host)
        self._forget(handshake)
        handshake.cancel()

    def _forget(self, handshake: asyncio.Task[None]) -> None:
        host = self._handshakes.pop(handshake, None)
        if host is not None:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]

    async def _handshake(self, accepted: socket.socket, host: str) -> None:
        with contextlib.suppress(OSError):  # the peer may already have disconnected
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                await _wait_for_data(accepted)
            if refuse_plaintext(accepted, host, _log):
                accepted.close()
                return
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol, accepted, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
        except OSError:  # the handshake failed, or was not completed in time
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise


async def _wait_for_data(connection: socket.socket) -> None:
    """Return when a socket has data to read, or when its peer has disconnected."""
    loop = asyncio.get_running_loop()
    has_data = asyncio.Event()
    loop.add_reader(connection, has_data.set)
    try:
        await has_data.wait()
    finally:
        loop.remove_reader(connection)
