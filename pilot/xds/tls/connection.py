"""One connection with TLS: the handshake, who the peer is, and its way on to the gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import Callable

from pilot.lib.log import scope
from pilot.lib.text import cut, one_line
from pilot.xds.identity import IdentityError
from pilot.xds.tls.flow import Flow

RETRY = 0.02
"""Seconds after which a connection to the gRPC server, whose queue was full, is tried again."""
_PREFIX = "pyistiod-peer/"
_log = scope("tls")

Names = Callable[[bytes], tuple[str, ...]]
"""Returns the names in a certificate (DER) that TLS has verified, at least one. IdentityError where it is not one of the mesh."""


class TlsConnection:
    """A peer's connection. `name` is that by which the gRPC server knows it, "" until it is forwarded; `certified` are the names in the peer's
    certificate. `on_open` is called when the gRPC server is reached, `on_close` once, when the connection has ended for whatever reason."""

    def __init__(
        self,
        outer: ssl.SSLSocket,
        address: str,
        inner_address: str,
        names: Names,
        on_open: Callable[[TlsConnection], None],
        on_close: Callable[[TlsConnection], None],
    ) -> None:
        self.address, self.name = address, ""
        self.certified: tuple[str, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._outer, self._inner_address, self._names, self._on_open, self._on_close = (
            outer,
            inner_address,
            names,
            on_open,
            on_close,
        )
        self._inner: socket.socket | None = None
        self._flows: tuple[Flow, ...] = ()
        self._is_secured = self._is_closed = False

    def handshake(self) -> None:
        """Goes on with the handshake as far as the bytes that have arrived allow."""
        try:
            self._outer.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:  # the first flight fits into an empty buffer of the kernel
            return
        except OSError as error:
            _log.info("TLS handshake with %s failed: %s", self.address, cut(one_line(str(error)), 200))
            self.close()
            return
        self._is_secured = True
        try:
            certificate = self._outer.getpeercert(binary_form=True)
            self.certified = self._names(certificate) if certificate else ()
        except IdentityError as error:
            _log.warning("the certificate of %s is refused: %s", self.address, cut(one_line(str(error)), 200))
            self.close()
            return
        self._connect()

    def _connect(self) -> None:
        """Connects to the gRPC server from a socket with a name that nobody can guess or has had."""
        if self._is_closed:
            return
        if self._inner is None:
            self._inner = socket.socket(socket.AF_UNIX)
            self._inner.setblocking(False)
            name = _PREFIX + secrets.token_hex(16)
            self._inner.bind(f"\0{name}")
            self.name = f"unix-abstract:{name}"
            self._on_open(self)
        try:
            self._inner.connect(self._inner_address)
        except BlockingIOError:
            self._loop.remove_reader(self._outer)
            self._loop.call_later(RETRY, self._connect)
            return
        except OSError as error:
            _log.error("cannot forward %s: %s", self.address, error)
            self.close()
            return
        self._flows = (
            Flow(self._loop, self._outer, self._inner, self.close),
            Flow(self._loop, self._inner, self._outer, self.close),
        )
        for flow in self._flows:
            flow.start()

    def close(self) -> None:
        """Ends the connection on both sides."""
        if self._is_closed:
            return
        self._is_closed = True
        self._on_close(self)
        for one in (self._outer, self._inner):
            if one is not None:
                self._loop.remove_reader(one)
                self._loop.remove_writer(one)
        with contextlib.suppress(OSError, ValueError):
            if self._is_secured:
                self._outer.unwrap()  # says that nothing more follows; nobody waits for the answer
        self._outer.close()
        if self._inner is not None:
            self._inner.close()
        self._flows = ()
