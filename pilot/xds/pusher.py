"""The pusher writes what connections lack: one response at a time a connection, bounded over all of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.lib.text import human_size
from pilot.lib.xds_types import short_name
from pilot.xds.connection import Connection, of_events
from pilot.xds.discovery import Discovery
from pilot.xds.messages import EncodedMessage, Messages, random_uuid
from pilot.xds.secret_report import SecretReport
from pilot.xds.session import Response
from pilot.xds.sockets import Sockets
from pilot.xds.time_slicer import Turns
from pilot.xds.write_limiter import DEFAULT_LIMITS, Flight, FlightLimits, Write

WriteBytes = Callable[[bytes], Awaitable[None]]
_log = scope("ads")
HOLD = 0.05
LOOK = 0.05
"""Seconds between two looks at the writes that last."""
DEPENDENT = {"depdendentresource": 1}  # spelt as the metric pilot_push_triggers has it


class Pushed(NamedTuple):
    """A response that has been written. `events`: the numbers of those that it may follow from; times are monotonic: when the proxy's turn came, when
    the message was made, and when it was written."""

    events: tuple[int, ...]
    type_url: str
    size: int
    began: float
    made: float
    written: float


class Pusher:
    """A pusher turns what changed into writes. Nothing is prepared for a connection before its turn, so a slow one costs no memory."""

    def __init__(self, discovery: Discovery, metrics: Metrics, limits: FlightLimits = DEFAULT_LIMITS) -> None:
        self._discovery, self._metrics = discovery, metrics
        self.flight, self.sockets = Flight(limits), Sockets()
        self._looked: float | None = None
        self._turns = Turns()
        self._messages = Messages()
        self.secrets = SecretReport(metrics)
        self._held: dict[Connection, None] = {}
        self._ripe: dict[Connection, None] = {}
        self._holding = False
        self.on_push: Callable[[Pushed], None] | None = None

    async def serve(self, connection: Connection, write: WriteBytes) -> None:
        """Writes to a connection whatever it lacks, until it is finished."""
        while True:
            await connection.changed.wait()
            if connection.finished:
                return
            await self._turns.turn()
            since, reasons = connection.begin(), connection.reasons
            self._metrics.dequeued(time.monotonic() - since, reasons)
            wrote = False
            while connection.said and not connection.finished:
                await write(connection.said.popleft())
            while not connection.finished and await self._write_next(connection, write):
                wrote = True
            connection.busy = False
            self._discovery.answered(connection)
            if wrote:
                self._metrics.converged(time.monotonic() - since)

    def release_soon(self, connection: Connection) -> None:
        """Lets the session owe what it held, unless a request does so within `HOLD` to twice as many seconds. One timer serves all connections."""
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

    async def _write_next(self, connection: Connection, write: WriteBytes) -> bool:
        """Writes the next response, if there is one; returns whether there was."""
        started = time.monotonic()
        answer = self._discovery.next_response(connection)
        if answer is None:
            return False
        writing = Write(
            answer.size, connection.peer, connection.give_up, lambda: self.sockets.delivered(connection.address)
        )
        taken = False
        if not self.flight.begin(writing):
            await self.flight.wait(writing, connection.is_known)
            answer = (
                None if connection.finished else self._discovery.next_response(connection)
            )  # of now, not of before the wait
        self._look_soon()
        try:
            if answer is not None:
                await self._write(connection, answer, write, started)
                taken = True
        finally:
            self.flight.end(writing, taken)
        return answer is not None

    async def _write(self, connection: Connection, answer: Response, write: WriteBytes, started: float) -> None:
        message = await self._message(connection, answer)
        self.secrets.sent(connection, answer)
        writing = time.monotonic()
        try:
            await write(message)
        except Exception:
            self._metrics.send_failed(answer.type_url)
            raise
        now = time.monotonic()
        self._metrics.sent(answer.type_url, len(message), now - started, now - writing)
        if self.on_push is not None and connection.under_way:
            self.on_push(Pushed(connection.under_way, answer.type_url, len(message), started, writing, now))
        if _log.isEnabledFor(logging.DEBUG):
            why, nonce = (
                "" if "proxyrequest" not in connection.reasons else " request",
                connection.watches[answer.type_url].nonce_sent,
            )
            told = (
                short_name(answer.type_url).upper(),
                why,
                connection.proxy.id,
                answer.resources,
                human_size(len(message)),
                nonce,
            )
            _log.debug("%s: PUSH%s for node:%s resources:%d size:%s nonce:%s", *told, extra=of_events(connection))

    async def _message(self, connection: Connection, answer: Response) -> bytes:
        """Returns the bytes of an answer, which counts as sent from now on: requests may come between the slices of a large one."""
        session, version, shared = connection.session, self._discovery.version, connection.shares(answer.type_url)
        found = self._messages.find(session, answer, version) if shared else None
        nonce = version + random_uuid() if found is None else found.nonce
        session.sent(answer, nonce, time.time())
        connection.wrote(answer.type_url, self._discovery.db.revision)
        if found is not None:
            return found.data
        made = await joined(session.slices(answer, version, nonce))
        if shared:
            self._messages.keep(session, answer, version, EncodedMessage(nonce, made))
        return made

    def _look_soon(self) -> None:
        """Has the writes looked at every `LOOK` seconds, as long as there are any."""
        if self._looked is None:
            self._looked = time.monotonic()
            asyncio.get_running_loop().call_later(LOOK, self._look)

    def _look(self) -> None:
        assert self._looked is not None
        now = time.monotonic()
        # Where this process gets no time itself, nobody is blamed for it
        for _ in self.flight.look(min(now - self._looked, 2 * LOOK)):
            self._metrics.write_timed_out()
        self._looked = now if len(self.flight) or self.flight.waiting else None
        if self._looked is not None:
            asyncio.get_running_loop().call_later(LOOK, self._look)

    def sweep(self) -> None:
        """Forgets the messages that were kept for others."""
        self._messages.clear()


async def joined(slices: Iterator[bytes]) -> bytes:
    """Returns the slices as one; whatever else there is to do gets its turn between two of them."""
    made = [next(slices)]
    for piece in slices:
        made.append(piece)
        await asyncio.sleep(0)
    return made[0] if len(made) == 1 else b"".join(made)
