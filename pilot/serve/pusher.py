"""Writes what connections lack: one response at a time a connection, bounded over all of them."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pilot.lib.metrics import Metrics
from pilot.serve.connection import Connection
from pilot.serve.discovery import Discovery
from pilot.serve.flight import BytesInFlight, Turns
from pilot.serve.messages import Messages
from pilot.serve.session import Answer

Write = Callable[[bytes], Awaitable[None]]
WRITE_TIMEOUT = 60.0
HOLD = 0.05
DEPENDENT = {"depdendentresource": 1}  # spelt as the metric pilot_push_triggers has it


class Pusher:
    """Turns what changed into writes. Nothing is prepared for a connection before its turn, so a slow one costs no memory."""

    def __init__(self, discovery: Discovery, metrics: Metrics, bytes_in_flight: int, write_timeout: float = WRITE_TIMEOUT) -> None:
        self._discovery, self._metrics = discovery, metrics
        self.flight = BytesInFlight(bytes_in_flight)
        self._turns = Turns()
        self._write_timeout = write_timeout
        self._writing: dict[Connection, float] = {}
        self._messages = Messages()
        self._held: dict[Connection, None] = {}
        self._ripe: dict[Connection, None] = {}
        self._holding = False

    async def serve(self, connection: Connection, write: Write) -> None:
        """Write to a connection whatever it lacks, until it is finished."""
        while True:
            await connection.changed.wait()
            if connection.finished:
                return
            await self._turns.turn()
            since, reasons = connection.begin(), connection.reasons
            self._metrics.dequeued(time.monotonic() - since, reasons)
            wrote = False
            while not connection.finished and await self._write_next(connection, write):
                wrote = True
            connection.busy = False
            if wrote:
                self._metrics.converged(time.monotonic() - since)

    def release_soon(self, connection: Connection) -> None:
        """Let the session owe what it held, unless a request does so within `HOLD` to twice as many seconds. One timer serves all connections."""
        if not self._holding:
            self._holding = True
            asyncio.get_running_loop().call_later(HOLD, self._release)
        self._held[connection] = None

    def _release(self) -> None:
        now = time.monotonic()
        for connection in self._ripe:
            connection.session.release()
            if connection.session.owes():
                connection.mark(now, DEPENDENT)
        self._ripe, self._held = self._held, {}
        self._holding = bool(self._ripe)
        if self._holding:
            asyncio.get_running_loop().call_later(HOLD, self._release)

    async def _write_next(self, connection: Connection, write: Write) -> bool:
        """Write the next response, if there is one."""
        started = time.monotonic()
        answer = self._discovery.next_answer(connection)
        if answer is None:
            return False
        size = answer.size
        waits = not self.flight.take(size)
        if waits:
            await self.flight.wait(size)
        try:
            if waits:
                answer = self._discovery.next_answer(connection)  # the state of now counts, not that of before the wait
            if answer is not None:
                await self._write(connection, answer, write, started)
        finally:
            self.flight.give_back(size)
        return answer is not None

    async def _write(self, connection: Connection, answer: Answer, write: Write, started: float) -> None:
        nonce, message = self._messages.of(connection.session, answer, self._discovery.version, connection.shares(answer.type_url))
        connection.session.sent(answer, nonce, time.time())
        writing = self._writing[connection] = time.monotonic()
        try:
            await write(message)
        except Exception:
            self._metrics.send_failed(answer.type_url)
            raise
        finally:
            del self._writing[connection]
        now = time.monotonic()
        self._metrics.sent(answer.type_url, len(message), now - started, now - writing)

    def sweep(self) -> int:
        """End the streams whose proxies have taken nothing for `write_timeout` seconds; how many. Messages are let go."""
        self._messages.clear()
        limit = time.monotonic() - self._write_timeout
        stuck = [connection for connection, since in self._writing.items() if since <= limit]
        for connection in stuck:
            self._metrics.write_timed_out()
            if connection.end is not None:
                connection.end()
        return len(stuck)

