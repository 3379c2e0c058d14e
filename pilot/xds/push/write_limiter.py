"""Limits concurrent writes. Memory is bounded, and proxies that do not read responses do not delay other proxies.

The limiter has no clock. `advance` tells it how much time has passed. See docs/adr/010-slow-readers.md for the reasons.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from pilot.settings.process import ServeSettings
from pilot.xds.push.fair_queue import FairQueue

_MAX_READERS = 10_000
"""Maximum number of peers that are remembered because they have read a large response."""


class WriteLimits(NamedTuple):
    """Limits of the write limiter, in bytes and seconds.

    moving: Maximum total size of large responses whose write started recently.
    stalled: Maximum total size of responses whose write takes longer.
    small: Maximum size of a small response. Small responses never wait.
    patience: Minimum age at which a write is considered stalled.
    grace: Minimum age at which a stalled write may be aborted in favour of others.
    slowest: Rate in bytes per second. A write that could not have finished at this rate yet is not aborted for others.
    timeout: Maximum age of a write.
    """

    moving: int = 32 << 20
    stalled: int = 128 << 20
    small: int = 64 << 10
    patience: float = 0.15
    grace: float = 0.5
    slowest: int = 4 << 20
    timeout: float = 60.0


DEFAULT_LIMITS = WriteLimits()


def write_limits(settings: ServeSettings) -> WriteLimits:
    """Return the limits in the settings."""
    return WriteLimits(settings.bytes_in_flight, settings.stalled_bytes, timeout=settings.write_timeout.seconds)


class Write:
    """A response that is being written or waits for its turn.

    peer: Identity or address of the stream's peer.
    abort: Aborts the stream.
    acked_bytes: Returns the number of bytes that the peer has acknowledged so far, or None if it is unknown.

    The limiter maintains the other attributes: the time when the write started, whether it is stalled, how long after
    the start it stalled, and how many bytes had been acknowledged by then.
    """

    __slots__ = (
        "abort",
        "acked_before_stall",
        "acked_bytes",
        "is_stalled",
        "peer",
        "size",
        "stalled_after",
        "started_at",
        "turn",
    )

    def __init__(self, size: int, peer: str, abort: Callable[[], None], acked_bytes: Callable[[], int | None]) -> None:
        self.size, self.peer, self.abort, self.acked_bytes = size, peer, abort, acked_bytes
        self.started_at = self.stalled_after = 0.0
        self.acked_before_stall: int | None = None
        self.is_stalled = False
        self.turn: asyncio.Future[None] | None = None


class WriteLimiter:
    """Limits concurrent writes per peer.

    A large write needs room in `moving`. When it is older than `patience`, it is stalled, moves to `stalled` and frees
    its room in `moving`. If `stalled` has no room left, writes without progress are aborted. A peer may use at most
    three quarters of either room, and peers take turns.

    Streams that have acknowledged a response do not wait behind new streams. A new stream whose peer has read a large
    response, and has not been aborted since, does not wait behind new streams of unknown peers.
    """

    def __init__(self, limits: WriteLimits) -> None:
        self.limits = limits
        self.time = 0.0
        self.moving, self.stalled = _Room(limits.moving), _Room(limits.stalled)
        self._writes: dict[Write, None] = {}  # oldest first
        self._aborted: list[Write] = []
        self._stuck: list[Write] | None = None  # computed on demand, once for each `advance`
        self._established: FairQueue[Write] = FairQueue()
        self._trusted: FairQueue[Write] = FairQueue()
        self._unknown: FairQueue[Write] = FairQueue()
        self._prefers_established = self._prefers_trusted = True
        self._readers: OrderedDict[str, None] = OrderedDict()  # least recent first
        self._typical_duration = 0.0

    def __len__(self) -> int:
        """Return the number of writes in progress."""
        return len(self._writes)

    @property
    def waiting(self) -> int:
        """Return the number of writes that wait for room."""
        return len(self._established) + len(self._trusted) + len(self._unknown)

    @property
    def patience(self) -> float:
        """Return the age at which a write is considered stalled. It is several times the duration of successful writes,
        within limits."""
        return min(max(self.limits.patience, 3 * self._typical_duration), self.limits.timeout / 2)

    # -- one write -----------------------------------------------------------------------------------------------------

    def try_start(self, write: Write) -> bool:
        """Start a write if it is small, or if there is room for it and no other write is waiting. Return whether the
        write was started."""
        if self._is_large(write) and (self.waiting or not self.moving.fits(write)):
            return False
        self._start(write)
        return True

    async def wait(self, write: Write, is_established: bool) -> None:
        """Start a write when it is its turn. `is_established` tells whether its stream has acknowledged a response."""
        write.turn = asyncio.get_running_loop().create_future()
        queue = self._established if is_established else self._trusted if write.peer in self._readers else self._unknown
        queue.push(write.peer, write)
        self._start_waiting()
        try:
            await write.turn
        except asyncio.CancelledError:
            if not queue.remove(write.peer, write):  # it had started
                self.finish(write, succeeded=False)
            raise

    def finish(self, write: Write, succeeded: bool) -> None:
        """Finish a write that was started. `succeeded` tells whether the proxy has read it."""
        if write not in self._writes:  # it was aborted, or its stream ended before its turn
            return
        self._remove(write)
        if succeeded and self._is_large(write):
            self._typical_duration += (self.time - write.started_at - self._typical_duration) / 8
            self._remember_reader(write.peer)
        self._start_waiting()

    def _remember_reader(self, peer: str) -> None:
        self._readers[peer] = None
        self._readers.move_to_end(peer)
        if len(self._readers) > _MAX_READERS:
            self._readers.popitem(last=False)

    def _start(self, write: Write) -> None:
        write.started_at = self.time
        self._writes[write] = None
        if self._is_large(write):
            self.moving.add(write)

    def _remove(self, write: Write) -> None:
        del self._writes[write]
        if write.is_stalled:
            self.stalled.remove(write)
        elif self._is_large(write):
            self.moving.remove(write)

    def _is_large(self, write: Write) -> bool:
        return write.size > self.limits.small

    # -- order ---------------------------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        """Start waiting writes for as long as there is room."""
        while (write := self._next()) is not None:
            assert write.turn is not None
            if not write.turn.done():  # otherwise its stream has just ended
                self._start(write)
                write.turn.set_result(None)

    def _next(self) -> Write | None:
        """Return the next write, or None if no write fits.

        Established and new streams alternate. Among new streams, trusted and unknown peers alternate.
        """
        new = (self._trusted, self._unknown) if self._prefers_trusted else (self._unknown, self._trusted)
        for queue in (self._established, *new) if self._prefers_established else (*new, self._established):
            write = queue.peek(self.moving.has_share)
            if write is not None:
                if not self.moving.fits(write):
                    return None  # smaller writes must not overtake it, or it would never find room
                queue.pop(write.peer, write)
                self._prefers_established = queue is not self._established
                if queue is not self._established:
                    self._prefers_trusted = queue is self._unknown
                return write
        return None

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> list[Write]:
        """Advance the time, mark writes as stalled, and abort writes that take too long or for which there is no room.

        Return the aborted writes.
        """
        self.time += seconds
        self._stuck = None
        for write in list(self._writes):
            age = self.time - write.started_at
            if write not in self._writes:  # aborted for another one
                continue
            if age >= self.limits.timeout:
                self._abort(write)
            elif age < self.patience:
                break
            elif not write.is_stalled:
                self._stall(write)
        self._start_waiting()
        aborted, self._aborted = self._aborted, []
        for write in aborted:
            write.abort()
        return aborted

    def _stall(self, write: Write) -> None:
        """Move a write to the stalled writes.

        If a large write does not fit there and other writes are waiting, stuck writes are aborted to make room. If that
        is not enough, or no writes are waiting, the write stays where it is.
        """
        is_large = self._is_large(write)
        if is_large and not self.waiting and not self.stalled.fits(write):
            return
        while not self.stalled.fits(write) and (victim := self._victim(write)) is not None:
            assert self._stuck is not None
            self._stuck.remove(victim)
            self._abort(victim)
        if is_large and not self.stalled.fits(write):
            return
        if is_large:
            self.moving.remove(write)
        self.stalled.add(write)
        write.is_stalled, write.stalled_after = True, self.time - write.started_at
        write.acked_before_stall = write.acked_bytes()

    def _victim(self, newcomer: Write) -> Write | None:
        """Return the stuck write to abort in favour of another write, or None if there is none.

        It is the oldest stuck write of the same peer if that peer has used up its share. Otherwise it belongs to the
        peer with the most stalled bytes.
        """
        if self._stuck is None:
            self._stuck = [write for write in self._writes if write.is_stalled and self._is_stuck(write)]
        of_peer = [write for write in self._stuck if write.peer == newcomer.peer]
        if not self.stalled.has_share(newcomer):
            return of_peer[0] if of_peer else None
        return max(self._stuck, key=self.stalled.used_by_peer, default=None)

    def _is_stuck(self, write: Write) -> bool:
        """Return whether a write is too slow to finish before the timeout.

        If its progress is unknown, only its age is considered.
        """
        age = self.time - write.started_at
        grace = max(self.limits.grace, 2 * self.patience, write.size / self.limits.slowest)
        if age < grace:
            return False
        acked = write.acked_bytes()
        if acked is None or write.acked_before_stall is None:
            return age >= 10 * grace
        return (acked - write.acked_before_stall) * self.limits.timeout < write.size * (age - write.stalled_after)

    def _abort(self, write: Write) -> None:
        self._remove(write)
        self._readers.pop(write.peer, None)
        self._aborted.append(write)


class _Room:
    """Room for `limit` bytes. One peer may use at most three quarters of them. If the room is empty, any write fits."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._by_peer: Counter[str] = Counter()

    def fits(self, write: Write) -> bool:
        return not self.used or (self.used + write.size <= self.limit and self.has_share(write))

    def used_by_peer(self, write: Write) -> int:
        """Return the number of bytes that the write's peer uses."""
        return self._by_peer.get(write.peer, 0)

    def has_share(self, write: Write) -> bool:
        used = self.used_by_peer(write)
        return not used or used + write.size <= self.limit * 3 // 4

    def add(self, write: Write) -> None:
        self.used += write.size
        self._by_peer[write.peer] += write.size

    def remove(self, write: Write) -> None:
        self.used -= write.size
        self._by_peer[write.peer] -= write.size
        if not self._by_peer[write.peer]:
            del self._by_peer[write.peer]
