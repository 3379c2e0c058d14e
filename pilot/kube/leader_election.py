"""Leader election between replicas. The leader is the replica that is named in a lock and renews the lock.

A replica takes over a lock that has not changed for the lock's duration. It measures the duration with its own clock,
from the moment when it saw the last change, so clocks need not be synchronized. A leader that cannot renew the lock in
time steps down before another replica can take over. If another replica has a higher priority, it takes over the lock,
and the leader notices this when it renews the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from pilot.kube.api_errors import KubeError
from pilot.kube.leader_lock import LeaderRecord, Lock, LockObject
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("leader")


class LeaseDurations(NamedTuple):
    """Durations in seconds.

    lease: Time for which a lock is valid without being renewed.
    renew_deadline: Time without a renewal after which the holder steps down.
    retry_period: Time between two attempts to acquire or renew the lock.
    """

    lease: float = 30.0
    renew_deadline: float = 15.0
    retry_period: float = 5.0


def never_outranks(_: str) -> bool:
    """Return False. A leader then leads until it fails to renew the lock."""
    return False


class LeaderElection:
    """One replica's candidacy for one lock. `is_leader` is true while the replica leads.

    `key` describes the replica's priority and is stored with `identity`. `outranks` takes the holder's key and returns
    whether this replica has a higher priority than the holder.
    """

    def __init__(
        self,
        lock: Lock,
        identity: str,
        durations: LeaseDurations = LeaseDurations(),
        key: str = "",
        outranks: Callable[[str], bool] = never_outranks,
    ) -> None:
        self.name, self.is_leader = lock.name, False
        self._lock, self._identity, self._durations, self._key, self._outranks = (
            lock,
            identity,
            durations,
            key,
            outranks,
        )
        self._last_record: LeaderRecord | None = None
        self._last_change = 0.0
        self._current: LockObject | None = None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` whenever this replica leads, until cancelled. Finally, release the lock."""
        try:
            while True:
                await self._acquire()
                _log.info("%s: this replica became the leader", self.name)
                self.is_leader = True
                leading = asyncio.create_task(self._lead(lead), name=f"lead {self.name}")
                try:
                    await self._renew()
                    _log.warning("%s: this replica is no longer the leader", self.name)
                finally:
                    self.is_leader = False
                    await cancel_tasks(leading)
        finally:
            await self._release()

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        try:
            await lead()
        except Exception:
            _log.exception("%s: the leader's task failed", self.name)

    async def _acquire(self) -> None:
        """Wait until this replica holds the lock."""
        self._current = None  # a leader that could not renew may have lost the lock
        while True:
            try:
                self._current = await self._try_acquire()
            except KubeError as error:
                _log.warning("%s: %s", self.name, error)
            if self._current is not None:
                return
            await asyncio.sleep(self._durations.retry_period)

    async def _renew(self) -> None:
        """Renew the lock until the deadline is exceeded or another replica holds the lock."""
        renewed_at = asyncio.get_running_loop().time()
        while self._current is not None:
            await asyncio.sleep(self._durations.retry_period)
            try:
                async with asyncio.timeout_at(renewed_at + self._durations.renew_deadline):
                    self._current = await self._try_acquire()
                    renewed_at = asyncio.get_running_loop().time()
            except TimeoutError:
                return
            except KubeError as error:
                _log.warning("%s: %s", self.name, error)
                if asyncio.get_running_loop().time() > renewed_at + self._durations.renew_deadline:
                    return

    async def _try_acquire(self) -> LockObject | None:
        """Return the lock if this replica holds it, or None if another replica does. Raise KubeError if a request
        fails."""
        lock = await self._lock.read()
        if lock is None:
            return await self._write(LeaderRecord(), None)
        holder = lock.record.holder_identity
        if (
            holder not in ("", self._identity)
            and not self._has_expired(lock.record)
            and not self._outranks(lock.record.holder_key)
        ):
            return None
        return await self._write(lock.record, lock)

    def _has_expired(self, record: LeaderRecord) -> bool:
        """Return whether this replica has seen no change of a record for the duration that the record specifies."""
        now = asyncio.get_running_loop().time()
        if record != self._last_record:
            self._last_record, self._last_change = record, now
        return now - self._last_change > (record.lease_duration_seconds or self._durations.lease)

    async def _write(self, record: LeaderRecord, previous: LockObject | None) -> LockObject | None:
        """Write this replica into the lock, and return the lock. Return None if another replica changed it first."""
        now = _micro_time()
        is_new = record.holder_identity != self._identity
        return await self._lock.write(
            LeaderRecord(
                self._identity,
                self._key,
                max(1, round(self._durations.lease)),
                now if is_new else record.acquire_time,
                now,
                record.leader_transitions + (is_new and previous is not None),
            ),
            previous,
        )

    async def _release(self) -> None:
        """Remove the holder from the lock, so that another replica need not wait for it to expire."""
        lock, self._current = self._current, None
        if lock is None:
            return
        now = _micro_time()
        record = msgspec.structs.replace(
            lock.record, holder_identity="", holder_key="", lease_duration_seconds=1, renew_time=now
        )
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._durations.retry_period):
                await self._lock.write(record, lock)


def _micro_time() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
