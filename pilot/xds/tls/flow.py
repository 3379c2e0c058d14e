"""Forwards bytes from one socket to another, as fast as the target socket accepts them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)
# A TLS read returns one record of up to 16 KiB. For gRPC, this is the amount that waits for a slow peer,
# in addition to the kernel's buffers.
_SIZE = 64 * 1024
_BUFFER = bytearray(_SIZE)
_VIEW = memoryview(_BUFFER)
"""A buffer that all flows share. Its content is written or copied before any flow reads again."""


class Flow:
    """One direction of a connection.

    Reading pauses until the target has accepted everything that was read. `on_end` is called when either socket is
    closed, or when `accept` returns False for the bytes that were read.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        target: socket.socket,
        on_end: Callable[[], None],
        accept: Callable[[memoryview], bool] | None = None,
    ) -> None:
        self._loop, self._source, self._target, self._on_end = loop, source, target, on_end
        self._accept = accept
        self._pending = b""

    def start(self) -> None:
        """Start forwarding. If the source socket already has another reader, replace it."""
        self._loop.add_reader(self._source, self._read)

    def _read(self) -> None:
        try:
            count = self._source.recv_into(_BUFFER, _SIZE)
        except _WOULD_BLOCK:
            return
        except OSError:
            count = 0
        if count and (self._accept is None or self._accept(_VIEW[:count])):
            self._write(_VIEW[:count])
        else:
            self._on_end()

    def _write(self, data: memoryview) -> None:
        try:
            count = self._target.send(data)
        except _WOULD_BLOCK:
            count = 0
        except OSError:
            self._on_end()
            return
        if count < len(data):
            self._pending = bytes(data[count:])
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._target, self._write_pending)

    def _write_pending(self) -> None:
        """Write the pending bytes. Until TLS has accepted all of them, the same bytes must be passed again."""
        try:
            self._pending = self._pending[self._target.send(self._pending) :]
        except _WOULD_BLOCK:
            return
        except OSError:
            self._on_end()
            return
        if not self._pending:
            self._loop.remove_writer(self._target)
            self.start()
