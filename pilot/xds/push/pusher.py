"""Writes the responses that connections lack. Each connection is sent one response at a time, within global limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.text import human_size
from pilot.lib.xds_types import DEBUG_PAGE, short_name
from pilot.xds.net.tcp_connections import TcpConnections
from pilot.xds.push.connection import Connection, QueuedMessage, event_fields
from pilot.xds.push.derivation_slices import in_slices
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.message_cache import EncodedMessage, MessageCache, random_uuid
from pilot.xds.push.secret_report import SecretReport
from pilot.xds.push.time_slicer import TimeSlicer
from pilot.xds.push.write_limiter import DEFAULT_LIMITS, Write, WriteLimiter, WriteLimits
from pilot.xds.session.session import Response

WriteBytes = Callable[[bytes], Awaitable[None]]
_log = scope("ads")
HOLD = 0.05
"""Minimum number of seconds for which endpoints are held back after their clusters were acknowledged. The maximum is
twice as long."""
CHECK_INTERVAL = 0.05
"""Seconds between checks for slow writes."""
LARGE = 1 << 20
"""Size in bytes above which a response is serialized, and copied by gRPC, in separate iterations of the event loop."""
DEPENDENT = {"depdendentresource": 1}  # spelled like this in the metric pilot_push_triggers


class Pushed(NamedTuple):
    """A response that was written.

    events: Events that may have caused it.
    began: Monotonic time when the pusher turned to the connection.
    encoded: Monotonic time when the message was encoded.
    written: Monotonic time when the message was written.
    """

    events: tuple[int, ...]
    type_url: str
    size: int
    began: float
    encoded: float
    written: float


def ignore_written(event: int, type_url: str, size: int) -> None:
    """Ignore a message."""


def ignore_derivations(event: int, count: int) -> None:
    """Ignore derivations."""


class Pusher:
    """Turns changes into writes. Nothing is prepared for a connection before its turn, so a slow connection uses no
    memory.

    `on_written` is called after each message with the last event that is being processed, or 0 if a request caused the
    message, and with the type and size of the message. `on_derivations` is called with the number of derivations that
    ran for an event, or for requests if the event is 0. `on_push`, if it is given, is called after each response.
    """

    def __init__(
        self,
        discovery: Discovery,
        metrics: Metrics,
        limits: WriteLimits = DEFAULT_LIMITS,
        on_written: Callable[[int, str, int], None] = ignore_written,
        on_derivations: Callable[[int, int], None] = ignore_derivations,
        on_push: Callable[[Pushed], None] | None = None,
    ) -> None:
        self._discovery, self._metrics = discovery, metrics
        self._on_written, self._on_derivations, self._on_push = on_written, on_derivations, on_push
        self.write_limiter, self.tcp_connections = WriteLimiter(limits), TcpConnections()
        self._checked_at: float | None = None
        self._time_slicer = TimeSlicer()
        self._messages = MessageCache()
        self.secret_report = SecretReport(metrics)
        self._held_connections: dict[Connection, None] = {}
        self._due: dict[Connection, None] = {}
        self._is_holding = False
        self._writing = 0

    @property
    def is_idle(self) -> bool:
        """Return whether no response is being computed. Responses may be being written."""
        return self._discovery.count_behind() <= self._writing

    async def serve(self, connection: Connection, write: WriteBytes) -> None:
        """Write the responses that a connection lacks, until the connection is finished."""
        while True:
            await connection.changed.wait()
            if connection.finished:
                return
            await self._time_slicer.wait_turn()
            if connection.finished:  # while it waited for its turn
                return
            since, reasons = connection.begin(), connection.reasons
            self._metrics.dequeued(time.monotonic() - since, reasons)
            has_written = False
            while connection.messages and not connection.finished:
                await self._write_message(connection, connection.messages.popleft(), write)
            while not connection.finished and await self._write_next(connection, write):
                has_written = True
            connection.end_processing()
            self._discovery.count_response(connection)
            if has_written:
                self._metrics.converged(time.monotonic() - since)

    def release_soon(self, connection: Connection) -> None:
        """Release the held endpoints of a connection after `HOLD` to 2 * `HOLD` seconds, unless a request releases them
        first.

        All connections share one timer.
        """
        if not self._is_holding:
            self._is_holding = True
            asyncio.get_running_loop().call_later(HOLD, self._release)
        self._held_connections[connection] = None

    def _release(self) -> None:
        now = time.monotonic()
        for connection in self._due:
            connection.session.release()
            if connection.session.owes_anything():
                connection.mark_dirty(now, DEPENDENT)
        self._due, self._held_connections = self._held_connections, {}
        self._is_holding = bool(self._due)
        if self._is_holding:
            asyncio.get_running_loop().call_later(HOLD, self._release)

    async def _write_next(self, connection: Connection, write: WriteBytes) -> bool:
        """Write the next response, if there is one. Return whether there was a response."""
        started_at = time.monotonic()
        response = await self._next_response(connection)
        if response is None:
            return False
        limited = self._limited_write(connection, response.size)
        succeeded = False
        has_waited = not self.write_limiter.try_start(limited)
        if has_waited:
            with self._while_writing():
                await self.write_limiter.wait(limited, connection.has_acknowledged)
        self._schedule_check()
        try:
            if has_waited:  # The current response, not the one from before the wait.
                response = await self._next_response(connection)
            if response is not None:
                await self._write(connection, response, write, started_at)
                succeeded = True
        finally:
            self.write_limiter.finish(limited, succeeded)
        return response is not None

    async def _write_message(self, connection: Connection, message: QueuedMessage, write: WriteBytes) -> None:
        limited, succeeded = self._limited_write(connection, len(message.data)), False
        if not self.write_limiter.try_start(limited):
            await self.write_limiter.wait(limited, connection.has_acknowledged)
        self._schedule_check()
        try:
            await write(message.data)
            succeeded = True
            self._on_written(0, DEBUG_PAGE, len(message.data))
        finally:
            self.write_limiter.finish(limited, succeeded)
        if not message.written.done():
            message.written.set_result(None)

    @contextlib.contextmanager
    def _while_writing(self) -> Iterator[None]:
        """Count a connection as writing."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1

    def _limited_write(self, connection: Connection, size: int) -> Write:
        """Return the object that represents a write on a connection in the write limiter."""
        return Write(
            size,
            connection.peer,
            connection.abort_slow_write,
            lambda: self.tcp_connections.acked_bytes(connection.address),
        )

    async def _next_response(self, connection: Connection) -> Response | None:
        """Return the next response, or None if there is none or the connection is finished.

        Other connections are served while it is being computed.
        """

        db = self._discovery.db
        runs, resumed_at, taken = db.runs, time.monotonic(), 0.0

        def read() -> Response | None:
            return None if connection.finished else self._discovery.next_response(connection)

        async def pause() -> None:
            nonlocal runs, resumed_at, taken
            self._on_derivations(connection.deliveries.event, db.runs - runs)
            taken += time.monotonic() - resumed_at
            await self._time_slicer.pause(taken)
            runs, resumed_at = db.runs, time.monotonic()

        response = await in_slices(db, read, pause)
        if db.runs != runs:
            self._on_derivations(connection.deliveries.event, db.runs - runs)
        return response

    async def _write(self, connection: Connection, response: Response, write: WriteBytes, started_at: float) -> None:
        message = await self._message(connection, response)
        self.secret_report.on_response(connection, response)
        encoded_at = time.monotonic()
        try:
            with self._while_writing():
                await write(message)
        except Exception:
            self._metrics.send_failed(response.type_url)
            raise
        now = time.monotonic()
        self._metrics.sent(response.type_url, len(message), now - started_at, now - encoded_at)
        deliveries = connection.deliveries
        self._on_written(deliveries.event, response.type_url, len(message))
        if self._on_push is not None:
            self._on_push(Pushed(deliveries.processed, response.type_url, len(message), started_at, encoded_at, now))
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "%s: PUSH%s for node:%s resources:%d size:%s nonce:%s",
                short_name(response.type_url).upper(),
                " request" if "proxyrequest" in connection.reasons else "",
                connection.proxy.id,
                response.resources,
                human_size(len(message)),
                connection.subscriptions[response.type_url].nonce_sent,
                extra=event_fields(connection),
            )

    async def _message(self, connection: Connection, response: Response) -> bytes:
        """Return the serialized response, and mark the response as sent.

        It is marked before it is serialized, because requests may arrive between the slices of a large response.
        """
        session, version = connection.session, self._discovery.version
        is_shared = connection.is_shared(response.type_url)
        cached = self._messages.find(session, response, version) if is_shared else None
        nonce = version + random_uuid() if cached is None else cached.nonce
        connection.mark_sent(response, self._discovery.db.revision, nonce)
        session.mark_sent(response, nonce, time.time())
        if cached is not None:
            return cached.data
        if is_large := response.size > LARGE:
            await asyncio.sleep(0)
        data = await join(session.slices(response, version, nonce))
        if is_large:
            await asyncio.sleep(0)
        if is_shared:
            self._messages.add(session, response, version, EncodedMessage(nonce, data))
        return data

    def _schedule_check(self) -> None:
        """Check for slow writes every `CHECK_INTERVAL` seconds for as long as writes are in progress or waiting."""
        if self._checked_at is None:
            self._checked_at = time.monotonic()
            asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._check)

    def _check(self) -> None:
        assert self._checked_at is not None
        now = time.monotonic()
        # If this process itself was delayed, the delay is not attributed to the proxies.
        for _ in self.write_limiter.advance(min(now - self._checked_at, 2 * CHECK_INTERVAL)):
            self._metrics.write_timed_out()
        self._checked_at = now if len(self.write_limiter) or self.write_limiter.waiting else None
        if self._checked_at is not None:
            asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._check)

    def sweep(self) -> None:
        """Drop cached messages."""
        self._messages.clear()


async def join(slices: Iterator[bytes]) -> bytes:
    """Return the concatenated slices. Between two slices, the event loop handles other events."""
    joined = [next(slices)]
    for piece in slices:
        joined.append(piece)
        await asyncio.sleep(0)
    return joined[0] if len(joined) == 1 else b"".join(joined)
