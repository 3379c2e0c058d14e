"""A TLS port that forwards its connections to a gRPC server in this process.

gRPC's own TLS either does not request client certificates or requires them, but agents have no certificate when they
request their first one. TLS is therefore terminated here, in the event loop, and gRPC listens on an abstract Unix
socket. gRPC distinguishes its peers by the name to which each forwarded socket is bound. A peer with an unknown name
did not come through the port and is rejected. For the reasons and measurements, see docs/adr/014-tls-front.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from pilot.lib.logging.log import scope
from pilot.xds.authn.identity import Caller, CallerGone, IdentityError, metadata_of
from pilot.xds.net.acceptor import Acceptor
from pilot.xds.net.listen_address import Address, format_host, format_peer
from pilot.xds.net.listening_sockets import listening_sockets
from pilot.xds.net.plaintext_peer import refuse_plaintext
from pilot.xds.tls.tls_connection import PEER_PREFIX, ReadNames, TlsConnection
from pilot.xds.tls.waiting_peers import Peer, WaitingPeers

HANDSHAKE_TIMEOUT = 30.0
"""Number of seconds within which a peer must send data and complete the handshake. It is long enough for thousands of
simultaneous peers."""
MAX_WAITING = 4096
"""Maximum number of peers whose handshake has not started. Beyond that, the oldest one of the source address with the
most is disconnected."""
MAX_HANDSHAKES = 256
"""Maximum number of concurrent handshakes. Other peers that have sent data wait, and source addresses take turns."""
CROWDED_HANDSHAKE_TIMEOUT = 5.0
"""Handshake timeout while others wait for `MAX_HANDSHAKES`. It is short, so that stalled peers do not block others."""
SLICE_SECONDS = 0.01
"""Number of seconds spent on handshakes in one iteration of the event loop, before other events are handled."""
CHECKS_IN_A_SLICE = 50
"""Number of certificates that are rechecked in one iteration of the event loop. A check takes 0.1 ms."""
_log = scope("tls")


class TlsFront:
    """A TLS port. `inner` is the address that the gRPC server must listen on, in gRPC's format.

    `on_limit` is called with the name of a limit when a peer's connection is closed because of it.
    """

    context: ssl.SSLContext
    _read_names: ReadNames

    def __init__(
        self, now: Callable[[], float] = time.monotonic, on_limit: Callable[[str], None] = lambda _: None
    ) -> None:
        self._now, self._on_limit = now, on_limit
        name = f"pyistiod/{secrets.token_hex(16)}"
        self.inner, self._inner_address = f"unix-abstract:{name}", f"\0{name}"
        self._acceptor: Acceptor | None = None
        self._waiting = WaitingPeers()
        self._handshakes: dict[TlsConnection, float] = {}  # start by connection, oldest first
        self._open: dict[str, TlsConnection] = {}
        self._slice_ends_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- the port ------------------------------------------------------------------------------------------------------

    async def listen(self, address: Address, context: ssl.SSLContext, read_names: ReadNames) -> int:
        """Start accepting connections, and return the port number. Raise OSError if the address is unavailable.

        `read_names` returns the names in a client's certificate.
        """
        self.context, self._read_names = context, read_names
        self._acceptor = Acceptor(await listening_sockets(address), self._add, _log)
        self._timer = asyncio.get_running_loop().call_later(1.0, self._sweep)
        number: int = self._acceptor.sockets[0].getsockname()[1]
        return number

    def use_context(self, context: ssl.SSLContext) -> None:
        """Use another context for new handshakes. The certificates of open connections are checked again, in slices."""
        self.context = context
        self._check_again(list(self._open.values()))

    def _check_again(self, connections: list[TlsConnection]) -> None:
        for connection in connections[:CHECKS_IN_A_SLICE]:
            connection.check_certificate()
        if rest := connections[CHECKS_IN_A_SLICE:]:
            asyncio.get_running_loop().call_soon(self._check_again, rest)

    def stop_accepting(self) -> None:
        """Close the port. Open connections are not closed."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def close(self) -> None:
        """Close the port and all connections."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
        for peer in self._waiting.take_since(float("inf")):
            self._disconnect(peer)
        for connection in (*self._handshakes, *self._open.values()):
            connection.close()

    def identify_peer(self, context: Any) -> Caller:
        """Return the caller of a gRPC call.

        Raise IdentityError if the call did not come through the port, or CallerGone if its connection has been closed.
        """
        peer = context.peer()
        connection = self._open.get(peer)
        if connection is None and peer.startswith(PEER_PREFIX):
            raise CallerGone("the caller has closed its connection")
        if connection is None:
            raise IdentityError("the call did not come through the secure port")
        return Caller(connection.address, metadata_of(context), connection.certificate_names)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _add(self, connection: socket.socket, address: Any) -> None:
        """Wait until a peer sends data."""
        peer = Peer(connection, address, self._now())
        self._waiting.add(peer)
        asyncio.get_running_loop().add_reader(peer.connection, self._on_data, peer)
        if len(self._waiting) > MAX_WAITING:
            self._disconnect(self._waiting.take_oldest_of_busiest())
            self._on_limit("handshakes")

    def _disconnect(self, peer: Peer) -> None:
        asyncio.get_running_loop().remove_reader(peer.connection)
        peer.connection.close()

    def _on_data(self, peer: Peer) -> None:
        asyncio.get_running_loop().remove_reader(peer.connection)
        self._waiting.mark_ready(peer)
        self._start_handshakes()

    def _start_handshakes(self) -> None:
        while len(self._handshakes) < MAX_HANDSHAKES and (peer := self._waiting.take_ready()) is not None:
            self._start_handshake(peer)

    def _start_handshake(self, peer: Peer) -> None:
        with contextlib.suppress(OSError):  # the peer may already have disconnected
            peer.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if refuse_plaintext(peer.connection, format_host(peer.name), _log):
            peer.connection.close()
            return
        try:
            outer = self.context.wrap_socket(peer.connection, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError):
            peer.connection.close()
            return
        connection = TlsConnection(
            outer,
            format_peer(peer.name),
            self._inner_address,
            self._read_names,
            self._on_open,
            self._on_close,
            self._on_limit,
        )
        self._handshakes[connection] = self._now()
        asyncio.get_running_loop().add_reader(outer, self._continue_handshake, connection)

    def _continue_handshake(self, connection: TlsConnection) -> None:
        """Continue a handshake, unless the time for this round is used up. In that case, the event loop calls this
        method again."""
        now = self._now()
        if self._slice_ends_at is None:
            self._slice_ends_at = now + SLICE_SECONDS
            asyncio.get_running_loop().call_soon(self._next_round)
        if now < self._slice_ends_at:
            connection.handshake()

    def _next_round(self) -> None:
        self._slice_ends_at = None

    def _on_open(self, connection: TlsConnection) -> None:
        self._open[connection.name] = connection
        self._finish_handshake(connection)

    def _on_close(self, connection: TlsConnection) -> None:
        self._open.pop(connection.name, None)
        self._finish_handshake(connection)

    def _finish_handshake(self, connection: TlsConnection) -> None:
        if self._handshakes.pop(connection, None) is not None and self._acceptor is not None:
            self._start_handshakes()

    def _sweep(self) -> None:
        """Close connections whose handshake takes too long, oldest first, and peers that have sent nothing for long."""
        now = self._now()
        for peer in self._waiting.take_since(now - HANDSHAKE_TIMEOUT):
            self._disconnect(peer)
        limit = now - (CROWDED_HANDSHAKE_TIMEOUT if self._waiting.has_ready else HANDSHAKE_TIMEOUT)
        for connection, since in list(self._handshakes.items()):
            if since > limit:
                break
            connection.close()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._sweep)
