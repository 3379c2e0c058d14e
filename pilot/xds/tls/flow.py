"""Bytes are carried from one socket to another as fast as the other one takes them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

_NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)
# One read of TLS gives one record, of 16 KiB at most. What is read of gRPC is all that may wait for a slow peer, besides the kernel's buffers
_SIZE = 64 * 1024
_BUFFER = bytearray(_SIZE)
_VIEW = memoryview(_BUFFER)
"""What is read is written or copied before anything else is read, so that one buffer does for all."""


class Flow:
    """One direction of a connection. What the target does not take at once waits here, and nothing more is read meanwhile; `ended` is called when
    either socket has no more to give or take."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, source: socket.socket, target: socket.socket, ended: Callable[[], None]
    ) -> None:
        self._loop, self._source, self._target, self._ended = loop, source, target, ended
        self._waiting = b""

    def start(self) -> None:
        """Carries from now on; whoever was told before that the source can be read is told no more."""
        self._loop.add_reader(self._source, self._read)

    def _read(self) -> None:
        try:
            count = self._source.recv_into(_BUFFER, _SIZE)
        except _NOT_NOW:
            return
        except OSError:
            count = 0
        if count:
            self._write(_VIEW[:count])
        else:
            self._ended()

    def _write(self, data: memoryview) -> None:
        try:
            sent = self._target.send(data)
        except _NOT_NOW:
            sent = 0
        except OSError:
            self._ended()
            return
        if sent < len(data):
            self._waiting = bytes(data[sent:])
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._target, self._write_waiting)

    def _write_waiting(self) -> None:
        """Writes what waits; TLS must be given the same bytes again until it has taken all of them."""
        try:
            self._waiting = self._waiting[self._target.send(self._waiting) :]
        except _NOT_NOW:
            return
        except OSError:
            self._ended()
            return
        if not self._waiting:
            self._loop.remove_writer(self._target)
            self.start()
