"""Acceptance of TCP connections in the event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

ACCEPTS_PER_ROUND = 32
"""Maximum number of connections accepted in one iteration of the event loop."""
ACCEPT_RETRY_DELAY = 0.5
"""Number of seconds for which no connections are accepted after the system ran out of file descriptors."""


class Acceptor:
    """Accepts connections at `sockets`. Bound to one event loop.

    `receive` is called with each connection, which is non-blocking, and its peer's address.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], receive: Callable[[socket.socket, Any], None], log: logging.Logger
    ) -> None:
        self.sockets, self._receive, self._log = list(sockets), receive, log
        for listener in self.sockets:
            self._accept_from(listener)

    def close(self) -> None:
        """Stop accepting connections."""
        listeners, self.sockets = self.sockets, []
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()

    def _accept_from(self, listener: socket.socket) -> None:
        if listener in self.sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                loop = asyncio.get_running_loop()
                self._log.error("cannot accept connections, retrying: %s", error)
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_RETRY_DELAY, self._accept_from, listener)
                return
            connection.setblocking(False)
            self._receive(connection, peer)
