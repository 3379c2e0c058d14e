"""Closes HTTP connections whose peer sends no request or does not read the response.

In both cases, aiohttp itself waits without a timeout. While a request is being processed, its connection is closed only
if the peer stops reading the response.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConnectionTimeouts(NamedTuple):
    """Timeouts in seconds, and the maximum number of connections.

    first_request: Maximum time until the header of the first request has arrived.
    idle: Maximum time between two requests.
    stalled: Maximum time without progress while the peer reads a response.
    max_connections: If there are more connections, those that have been idle longest are closed.
    check_interval: Time between two checks.
    """

    first_request: float = 30.0
    idle: float = 100.0
    stalled: float = 30.0
    max_connections: int = 2000
    check_interval: float = 5.0


class _Activity(NamedTuple):
    """The last activity of a connection: the number of unread bytes at that time, the time, and whether any request was
    answered."""

    unread: int
    at: float
    has_answered: bool


class HttpConnections:
    """The connections of one port. They are checked between `start` and `stop`."""

    def __init__(
        self,
        timeouts: ConnectionTimeouts = ConnectionTimeouts(),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeouts, self._now = timeouts, now
        self._server: Any = None
        self._processing: set[Any] = set()
        self._activity: dict[Any, _Activity] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add_to(self, app: web.Application) -> None:
        """Add a middleware that tracks the connections on which a request is being processed."""

        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            self._processing.add(connection)  # aiohttp processes one request of a connection at a time
            try:
                return await handler(request)
            finally:
                self._processing.discard(connection)
                self._activity[connection] = _Activity(_unread_bytes(connection), self._now(), True)

        app.middlewares.insert(0, track)

    def start(self, server: web.Server) -> None:
        """Start checking a server's connections."""
        self._server = server
        self._timer = asyncio.get_running_loop().call_later(self._timeouts.check_interval, self._check)

    async def stop(self, app: web.Application) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._timeouts.check_interval, self._check)
        self.close_inactive()

    def close_inactive(self) -> int:
        """Close inactive connections. Return the number of closed connections."""
        now, connections = self._now(), list(self._server.connections)
        self._activity = {
            connection: self._activity.get(connection, _Activity(0, now, False)) for connection in connections
        }
        for connection in connections:
            if (unread := _unread_bytes(connection)) != self._activity[connection].unread:
                self._activity[connection] = self._activity[connection]._replace(unread=unread, at=now)
        closed = [connection for connection in connections if self._has_timed_out(connection, now)]
        idle = [
            connection for connection in connections if connection not in self._processing and connection not in closed
        ]
        idle.sort(key=lambda connection: self._activity[connection].at)
        closed += idle[: max(0, len(connections) - len(closed) - self._timeouts.max_connections)]
        for connection in closed:
            _abort(connection)
        return len(closed)

    def _has_timed_out(self, connection: Any, now: float) -> bool:
        activity = self._activity[connection]
        if activity.unread:
            return now - activity.at >= self._timeouts.stalled
        limit = self._timeouts.idle if activity.has_answered else self._timeouts.first_request
        return connection not in self._processing and now - activity.at >= limit


def _unread_bytes(connection: Any) -> int:
    """Return the number of bytes that are not sent yet because the peer has not read."""
    transport = connection.transport
    return transport.get_write_buffer_size() if transport is not None and not transport.is_closing() else 0


def _abort(connection: Any) -> None:
    if connection.transport is not None:
        connection.transport.abort()
