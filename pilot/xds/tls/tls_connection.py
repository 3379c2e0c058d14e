"""A TLS connection: its handshake, its client certificate, and forwarding to the gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
from _ssl import ENCODING_DER
from collections.abc import Callable, Sequence
from typing import Any

from pilot.lib.logging.log import scope
from pilot.lib.text import cut, one_line
from pilot.xds.authn.identity import IdentityError
from pilot.xds.tls.flow import Flow
from pilot.xds.tls.frame_limits import FrameLimits

RETRY_DELAY = 0.02
"""Number of seconds until the next attempt to connect to the gRPC server if its queue is full."""
PEER_PREFIX = "unix-abstract:pyistiod-peer/"
"""Prefix of the names by which the gRPC server knows peers."""
_log = scope("tls")

ReadNames = Callable[[Sequence[bytes]], tuple[str, ...]]
"""Returns the names in the first certificate of a verified chain. The chain contains at least one certificate, and its
certificates are in DER.

Raises IdentityError if the certificate does not belong to the mesh, or if a certificate in the chain has been revoked.
"""


class TlsConnection:
    """The TLS connection of a peer.

    name: Name by which the gRPC server knows the peer, or "" if the connection is not forwarded yet.
    certificate_names: Names in the peer's certificate.
    on_open: Called when the connection to the gRPC server is established.
    on_close: Called once, when the connection has ended for any reason.
    on_limit: Called with the name of a limit that the peer exceeds, before the connection is closed.
    """

    def __init__(
        self,
        outer: ssl.SSLSocket,
        address: str,
        inner_address: str,
        read_names: ReadNames,
        on_open: Callable[[TlsConnection], None],
        on_close: Callable[[TlsConnection], None],
        on_limit: Callable[[str], None],
    ) -> None:
        self.address, self.name = address, ""
        self.certificate_names: tuple[str, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._outer, self._inner_address, self._read_names = outer, inner_address, read_names
        self._on_open, self._on_close, self._on_limit = on_open, on_close, on_limit
        self._frames = FrameLimits()
        self._inner: socket.socket | None = None
        self._flows: tuple[Flow, ...] = ()
        self._is_secured = self._is_closed = False

    def handshake(self) -> None:
        """Continue the handshake as far as the received bytes allow."""
        try:
            self._outer.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:  # cannot happen: the first flight fits into the kernel's empty buffer
            return
        except OSError as error:
            _log.info("TLS handshake with %s failed: %s", self.address, cut(one_line(str(error)), 200))
            self.close()
            return
        self._is_secured = True
        self.check_certificate()
        self._connect()

    def check_certificate(self) -> None:
        """Read the names in the peer's certificate. Close the connection if the certificate is rejected."""
        if self._is_closed:
            return
        try:
            chain = _verified_chain(self._outer)
            self.certificate_names = self._read_names(chain) if chain else ()
        except IdentityError as error:
            _log.warning("rejected the certificate of %s: %s", self.address, cut(one_line(str(error)), 200))
            self.close()

    def _connect(self) -> None:
        """Connect to the gRPC server from a socket with a unique and unpredictable name."""
        if self._is_closed:
            return
        if self._inner is None:
            self._inner = socket.socket(socket.AF_UNIX)
            self._inner.setblocking(False)
            self.name = PEER_PREFIX + secrets.token_hex(16)
            self._inner.bind(self.name.replace("unix-abstract:", "\0"))
            self._on_open(self)
        try:
            self._inner.connect(self._inner_address)
        except BlockingIOError:
            self._loop.remove_reader(self._outer)
            self._loop.call_later(RETRY_DELAY, self._connect)
            return
        except OSError as error:
            _log.error("cannot forward the connection from %s: %s", self.address, error)
            self.close()
            return
        self._flows = (
            Flow(self._loop, self._outer, self._inner, self.close, self._accept_frames),
            Flow(self._loop, self._inner, self._outer, self.close),
        )
        for flow in self._flows:
            flow.start()

    def _accept_frames(self, data: memoryview) -> bool:
        if self._frames.accept(data):
            return True
        _log.warning("closing the connection from %s: too many frames, or too large headers", self.address)
        self._on_limit("frames")
        return False

    def close(self) -> None:
        """Close the connection on both sides."""
        if self._is_closed:
            return
        self._is_closed = True
        self._on_close(self)
        for sock in (self._outer, self._inner):
            if sock is not None:
                self._loop.remove_reader(sock)
                self._loop.remove_writer(sock)
        with contextlib.suppress(OSError, ValueError):
            if self._is_secured:
                self._outer.unwrap()  # announces the end, without waiting for the response
        self._outer.close()
        if self._inner is not None:
            self._inner.close()
        self._flows = ()


def _verified_chain(sock: ssl.SSLSocket) -> Sequence[bytes]:
    """Return the verified certificate chain of a peer in DER, from its own certificate to the root, or () if the peer
    sent no certificate.

    `SSLSocket.get_verified_chain` has been public since Python 3.13.
    """
    connection: Any = sock._sslobj  # type: ignore[attr-defined]
    return [certificate.public_bytes(ENCODING_DER) for certificate in connection.get_verified_chain() or ()]
