"""A port with TLS, whose connections are forwarded to a gRPC server in this process.

gRPC's own TLS asks for no client certificate, or insists on one; agents have none when they ask for their first. So TLS ends here, in the event
loop, and gRPC listens on an abstract Unix socket. It tells its peers apart by the name to which each forwarded socket is bound; a peer whose name
is not known here did not come through the port, and is nobody. docs/adr/014-tls-front.md has the reasons and figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from pilot.lib.log import scope
from pilot.xds.address import Address, shown_address
from pilot.xds.identity import Caller, IdentityError, metadata_of
from pilot.xds.tls.connection import Names, TlsConnection

BACKLOG = 4096
HANDSHAKE_SECONDS = 30.0
"""Time in which a peer must have finished the handshake: long enough for thousands that come at once."""
AT_ONCE = 256
"""Handshakes that are under way; who comes then waits in the kernel's queue, whose order is that of their coming."""
CROWDED_SECONDS = 5.0
"""Age of a handshake that is ended for others who wait while there are `AT_ONCE`: peers that send nothing keep nobody out."""
SLICE = 0.01
"""Seconds of handshakes after which everything else gets its turn."""
PAUSE = 0.5
"""Seconds without accepting anything after the system had no more files."""
_log = scope("tls")


class TlsFront:
    """`context` is what new handshakes are done with, once it listens. `inner` is the address where the gRPC server
    has to listen, in gRPC's words."""

    context: ssl.SSLContext
    _names: Names

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        name = f"pyistiod/{secrets.token_hex(16)}"
        self.inner, self._inner_address = f"unix-abstract:{name}", f"\0{name}"
        self._listening: list[socket.socket] = []
        self._handshakes: dict[TlsConnection, float] = {}
        self._open: dict[str, TlsConnection] = {}
        self._slice_ends: float | None = None
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None

    # -- the port ------------------------------------------------------------------------------------------------------

    async def listen(self, address: Address, context: ssl.SSLContext, names: Names) -> int:
        """Accepts connections from now on; returns the number of the port. `names` reads client certificates. OSError where the address cannot be
        had."""
        self.context, self._names = context, names
        self._listening = await _listen(address)
        for one in self._listening:
            self._accept_from(one)
        self._timer = asyncio.get_running_loop().call_later(1.0, self._sweep)
        number: int = self._listening[0].getsockname()[1]
        return number

    def use(self, context: ssl.SSLContext) -> None:
        """Does the handshakes from now on with another context."""
        self.context = context

    def stop_accepting(self) -> None:
        """Closes the port; what is open stays."""
        for one in self._listening:
            asyncio.get_running_loop().remove_reader(one)
            one.close()
        self._listening = []

    def close(self) -> None:
        """Ends everything."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
        for connection in (*self._handshakes, *self._open.values()):
            connection.close()

    def meet(self, context: Any) -> Caller:
        """Returns who makes a gRPC call. IdentityError for a peer that did not come through the port."""
        found = self._open.get(context.peer())
        if found is None:
            raise IdentityError("the call did not come through the port with TLS")
        return Caller(found.address, metadata_of(context), found.certified)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _accept_from(self, listening: socket.socket) -> None:
        if listening in self._listening and not self._is_full:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while len(self._handshakes) < AT_ONCE:
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("cannot accept connections for a moment: %s", error)
                loop.remove_reader(listening)
                loop.call_later(PAUSE, self._accept_from, listening)
                return
            self._accepted(accepted, peer)
        self._is_full = True
        for one in self._listening:
            loop.remove_reader(one)

    def _accepted(self, accepted: socket.socket, peer: Any) -> None:
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # it may have gone already
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            outer = self.context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError):
            accepted.close()
            return
        connection = TlsConnection(
            outer, shown_address(peer), self._inner_address, self._names, self._opened, self._closed
        )
        self._handshakes[connection] = self._now()
        asyncio.get_running_loop().add_reader(outer, self._handshake, connection)

    def _handshake(self, connection: TlsConnection) -> None:
        """Goes on with a handshake, unless handshakes have had their time in this round of the event loop: then it will be called again."""
        now = self._now()
        if self._slice_ends is None:
            self._slice_ends = now + SLICE
            asyncio.get_running_loop().call_soon(self._next_round)
        if now < self._slice_ends:
            connection.handshake()

    def _next_round(self) -> None:
        self._slice_ends = None

    def _opened(self, connection: TlsConnection) -> None:
        self._open[connection.name] = connection
        self._shaken(connection)

    def _closed(self, connection: TlsConnection) -> None:
        self._open.pop(connection.name, None)
        self._shaken(connection)

    def _shaken(self, connection: TlsConnection) -> None:
        """Counts a handshake as over, and accepts again once half of those under way are."""
        self._handshakes.pop(connection, None)
        if self._is_full and len(self._handshakes) <= AT_ONCE // 2:
            self._is_full = False
            for one in self._listening:
                self._accept_from(one)

    def _sweep(self) -> None:
        """Closes the connections whose handshake takes too long, the oldest of which stand first; while others wait, that is not long."""
        oldest = self._now() - (CROWDED_SECONDS if self._is_full else HANDSHAKE_SECONDS)
        for connection, since in list(self._handshakes.items()):
            if since > oldest:
                break
            connection.close()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._sweep)


async def _listen(address: Address) -> list[socket.socket]:
    """Returns sockets that listen on an address, of both families where it names no host. OSError where one cannot be had."""
    if not address.host:
        return [_nonblocking(_listen_everywhere(address.port))]
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listening: list[socket.socket] = []
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            port = listening[0].getsockname()[1] if listening else where[1]
            listening.append(
                _nonblocking(socket.create_server((where[0], port, *where[2:]), family=family, backlog=BACKLOG))
            )
    except OSError:
        for one in listening:
            one.close()
        raise
    return listening


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)


def _nonblocking(listening: socket.socket) -> socket.socket:
    listening.setblocking(False)
    return listening
