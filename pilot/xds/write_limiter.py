"""Decides which responses may be written at once, so that memory is bounded and proxies that do not read hold up nobody.

This is bookkeeping without a clock: `look` is told how much time has passed. docs/adr/010-slow-readers.md has the reasons.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from pilot.settings.process import ServeSettings
from pilot.xds.fair_queue import Line

_TAKERS = 10_000
"""Peers that are remembered to have taken something."""


class FlightLimits(NamedTuple):
    """Bounds, in bytes and seconds.

    `moving` bounds the bytes of large responses whose writing began a moment ago, `stalled` those of responses that take longer.
    A response of up to `small` bytes waits for nobody. `patience` is the shortest time after which a write counts as stalled, `grace` the
    shortest after which it can be given up for others, longer for large ones: `slowest` is the bytes a second that are waited for. `timeout`
    is the time that it may take at all.
    """

    moving: int = 32 << 20
    stalled: int = 128 << 20
    small: int = 64 << 10
    patience: float = 0.15
    grace: float = 0.5
    slowest: int = 4 << 20
    timeout: float = 60.0


DEFAULT_LIMITS = FlightLimits()


def limits_of(settings: ServeSettings) -> FlightLimits:
    """Returns the limits that the settings give."""
    return FlightLimits(settings.bytes_in_flight, settings.stalled_bytes, timeout=settings.write_timeout.seconds)


class Write:
    """One response that is being written, or waits for its turn. `peer` is who is behind its stream, an identity or an address;
    `give_up` ends the stream; `taken` gives the bytes that its connection has delivered so far, None where that is not known.

    The flight keeps: when it `began`, whether it is stalled, how many seconds after it began, and what was taken until then.
    """

    __slots__ = ("began", "give_up", "is_stalled", "peer", "size", "stalled_after", "taken", "taken_before", "turn")

    def __init__(self, size: int, peer: str, give_up: Callable[[], None], taken: Callable[[], int | None]) -> None:
        self.size, self.peer, self.give_up, self.taken = size, peer, give_up, taken
        self.began = self.stalled_after = 0.0
        self.taken_before: int | None = None
        self.is_stalled = False
        self.turn: asyncio.Future[None] | None = None


class Flight:
    """The responses that are being written.

    A large one needs room among those that move. After `patience` it counts as stalled and leaves that room to others; where the stalled
    ones are too many, those that take nothing are given up. A peer holds at most three quarters of either room, peers take turns, and
    streams that have acknowledged something do not stand behind newcomers. Nor do newcomers of a peer that has taken a large response, and has not
    been given up since, stand behind those of peers of which nothing is known.
    """

    def __init__(self, limits: FlightLimits) -> None:
        self.limits = limits
        self.time = 0.0
        self.moving, self.stalled = _Room(limits.moving), _Room(limits.stalled)
        self._writes: dict[Write, None] = {}  # the oldest first
        self._given_up: list[Write] = []
        self._stuck: list[Write] | None = None  # as this look has found them, once it had to
        self._known: Line[Write] = Line()
        self._of_takers: Line[Write] = Line()
        self._new: Line[Write] = Line()
        self._known_next = self._of_takers_next = True
        self._takers: OrderedDict[str, None] = (
            OrderedDict()
        )  # the peers that have taken something, the last of them last
        self._typical = 0.0

    def __len__(self) -> int:
        """Returns how many are being written."""
        return len(self._writes)

    @property
    def waiting(self) -> int:
        """Returns how many wait for room."""
        return len(self._known) + len(self._of_takers) + len(self._new)

    @property
    def patience(self) -> float:
        """Returns the seconds after which a write counts as stalled: several times as many as writes take that succeed."""
        return min(max(self.limits.patience, 3 * self._typical), self.limits.timeout / 2)

    # -- one write -----------------------------------------------------------------------------------------------------

    def begin(self, write: Write) -> bool:
        """Begins a write if it is small, or if there is room and nobody waits for it; returns whether it began."""
        if self._is_large(write) and (self.waiting or not self.moving.fits(write)):
            return False
        self._begin(write)
        return True

    async def wait(self, write: Write, is_known: bool) -> None:
        """Begins a write when it is its turn. `is_known` says that its stream has acknowledged something."""
        write.turn = asyncio.get_running_loop().create_future()
        line = self._known if is_known else self._of_takers if write.peer in self._takers else self._new
        line.add(write.peer, write)
        self._release()
        try:
            await write.turn
        except asyncio.CancelledError:
            if not line.remove(write.peer, write):  # its turn had come
                self.end(write, taken=False)
            raise

    def end(self, write: Write, taken: bool) -> None:
        """Ends a write that began. `taken` says that the proxy has it."""
        if write not in self._writes:  # it was given up, or its stream ended before its turn
            return
        self._forget(write)
        if taken and self._is_large(write):
            self._typical += (self.time - write.began - self._typical) / 8
            self._trust(write.peer)
        self._release()

    def _trust(self, peer: str) -> None:
        self._takers[peer] = None
        self._takers.move_to_end(peer)
        if len(self._takers) > _TAKERS:
            self._takers.popitem(last=False)

    def _begin(self, write: Write) -> None:
        write.began = self.time
        self._writes[write] = None
        if self._is_large(write):
            self.moving.add(write)

    def _forget(self, write: Write) -> None:
        del self._writes[write]
        if write.is_stalled:
            self.stalled.remove(write)
        elif self._is_large(write):
            self.moving.remove(write)

    def _is_large(self, write: Write) -> bool:
        return write.size > self.limits.small

    # -- whose turn it is ----------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Lets those begin who wait, while there is room."""
        while (write := self._next()) is not None:
            assert write.turn is not None
            if not write.turn.done():  # else its stream has ended a moment ago
                self._begin(write)
                write.turn.set_result(None)

    def _next(self) -> Write | None:
        """Returns the write whose turn is next, None if nobody who waits fits. Known streams and newcomers alternate where both wait, and so do
        newcomers of both kinds."""
        new = (self._of_takers, self._new) if self._of_takers_next else (self._new, self._of_takers)
        for line in (self._known, *new) if self._known_next else (*new, self._known):
            write = line.peek(self.moving.has_share)
            if write is not None:
                if not self.moving.fits(write):
                    return None  # nor do smaller ones pass it, for it would never find room then
                line.take(write.peer, write)
                self._known_next = line is not self._known
                if line is not self._known:
                    self._of_takers_next = line is self._new
                return write
        return None

    # -- time passes ---------------------------------------------------------------------------------------------------

    def look(self, passed: float) -> list[Write]:
        """Lets `passed` seconds go by: finds the writes that are stalled by now, and returns those that it gives up for want of time or room."""
        self.time += passed
        self._stuck = None
        for write in list(self._writes):
            age = self.time - write.began
            if write not in self._writes:  # given up for another
                continue
            if age >= self.limits.timeout:
                self._give_up(write)
            elif age < self.patience:
                break
            elif not write.is_stalled:
                self._stall(write)
        self._release()
        given_up, self._given_up = self._given_up, []
        for write in given_up:
            write.give_up()
        return given_up

    def _stall(self, write: Write) -> None:
        """Takes a write's room for others. One that finds none among the stalled keeps it while nobody waits, or none has stalled for long."""
        is_large = self._is_large(write)
        if is_large and not self.waiting and not self.stalled.fits(write):
            return
        while not self.stalled.fits(write) and (victim := self._victim(write)) is not None:
            assert self._stuck is not None
            self._stuck.remove(victim)
            self._give_up(victim)
        if is_large and not self.stalled.fits(write):
            return
        if is_large:
            self.moving.remove(write)
        self.stalled.add(write)
        write.is_stalled, write.stalled_after, write.taken_before = True, self.time - write.began, write.taken()

    def _victim(self, newcomer: Write) -> Write | None:
        """Returns who is given up for another: of those that are stuck the oldest of its peer if that has more than its part, else of the peer
        that has the most."""
        if self._stuck is None:
            self._stuck = [write for write in self._writes if write.is_stalled and self._is_stuck(write)]
        of_peer = [write for write in self._stuck if write.peer == newcomer.peer]
        if not self.stalled.has_share(newcomer):
            return of_peer[0] if of_peer else None
        return max(self._stuck, key=self.stalled.held_by, default=None)

    def _is_stuck(self, write: Write) -> bool:
        """Returns whether it goes on so slowly that it would not be taken in time. Where that cannot be seen, a long time decides."""
        age, grace = (
            self.time - write.began,
            max(self.limits.grace, 2 * self.patience, write.size / self.limits.slowest),
        )
        if age < grace:
            return False
        taken = write.taken()
        if taken is None or write.taken_before is None:
            return age >= 10 * grace
        return (taken - write.taken_before) * self.limits.timeout < write.size * (age - write.stalled_after)

    def _give_up(self, write: Write) -> None:
        self._forget(write)
        self._takers.pop(write.peer, None)
        self._given_up.append(write)


class _Room:
    """A room for bytes up to a limit, at most three quarters of them of one peer. Anything fits into an empty room."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._of: Counter[str] = Counter()

    def fits(self, write: Write) -> bool:
        return not self.used or (self.used + write.size <= self.limit and self.has_share(write))

    def held_by(self, write: Write) -> int:
        """Returns the bytes that a write's peer has in here."""
        return self._of.get(write.peer, 0)

    def has_share(self, write: Write) -> bool:
        held = self.held_by(write)
        return not held or held + write.size <= self.limit * 3 // 4

    def add(self, write: Write) -> None:
        self.used += write.size
        self._of[write.peer] += write.size

    def remove(self, write: Write) -> None:
        self.used -= write.size
        self._of[write.peer] -= write.size
        if not self._of[write.peer]:
            del self._of[write.peer]
