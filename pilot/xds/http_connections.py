"""Connections of HTTP that do nothing are closed: those that send no request, and those that do not read the answer.

aiohttp waits for both without an end. Whatever is being computed for a connection, and an answer that goes on and on, is left alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConnectionPatience(NamedTuple):
    """`silent`: seconds for the head of a first request. `idle`: seconds between two requests. `stalled`: seconds in which some of an answer must be
    read. `most`: connections that may be open; of more, those go that have been silent longest. `look`: seconds between two looks."""

    silent: float = 30.0
    idle: float = 100.0
    stalled: float = 30.0
    most: int = 2000
    look: float = 5.0


class _Seen(NamedTuple):
    """How a connection was when it was seen to do something last: the bytes that wait to be read, when that was, and whether anything has been
    answered on it."""

    waiting: int
    at: float
    answered: bool


class Connections:
    """The connections of one port, between `start` and `stop`. `watch` is the middleware of its application."""

    def __init__(
        self,
        patience: ConnectionPatience = ConnectionPatience(),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience, self._now = patience, now
        self._server: Any = None
        self._answering: set[Any] = set()
        self._seen: dict[Any, _Seen] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add_to(self, app: web.Application) -> None:
        """Has the application tell which connections are being answered."""

        @web.middleware
        async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            self._answering.add(connection)  # aiohttp answers one request of a connection at a time
            try:
                return await handler(request)
            finally:
                self._answering.discard(connection)
                self._seen[connection] = _Seen(_waiting(connection), self._now(), True)

        app.middlewares.insert(0, watch)

    def start(self, server: web.Server) -> None:
        """Begins to look after the connections of a server."""
        self._server = server
        self._timer = asyncio.get_running_loop().call_later(self._patience.look, self._look_again)

    async def stop(self, app: web.Application) -> None:
        """Looks after nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._patience.look, self._look_again)
        self.look()

    def look(self) -> int:
        """Closes the connections that do nothing; returns how many."""
        now, connections = self._now(), list(self._server.connections)
        self._seen = {connection: self._seen.get(connection, _Seen(0, now, False)) for connection in connections}
        for connection in connections:
            if (waiting := _waiting(connection)) != self._seen[connection].waiting:
                self._seen[connection] = self._seen[connection]._replace(waiting=waiting, at=now)
        closed = [connection for connection in connections if self._is_done(connection, now)]
        silent = [
            connection for connection in connections if connection not in self._answering and connection not in closed
        ]
        silent.sort(key=lambda connection: self._seen[connection].at)
        closed += silent[: max(0, len(connections) - len(closed) - self._patience.most)]
        for connection in closed:
            _abort(connection)
        return len(closed)

    def _is_done(self, connection: Any, now: float) -> bool:
        seen = self._seen[connection]
        if seen.waiting:
            return now - seen.at >= self._patience.stalled
        limit = self._patience.idle if seen.answered else self._patience.silent
        return connection not in self._answering and now - seen.at >= limit


def _waiting(connection: Any) -> int:
    """Returns the bytes that wait to be read by a peer."""
    transport = connection.transport
    return transport.get_write_buffer_size() if transport is not None and not transport.is_closing() else 0


def _abort(connection: Any) -> None:
    if connection.transport is not None:
        connection.transport.abort()
