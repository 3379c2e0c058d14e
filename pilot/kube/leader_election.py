"""Who of several replicas leads: the one that a lock names and that renews it.

A replica takes over a lock that it has seen unchanged for as long as the lock says. It counts by its own clock from the moment in which
it saw the last change, so clocks need not agree. Who leads stops before others can begin: it gives up when it could not renew in time.
Replicas with more right to lead than the holder take the lock from it, who notices when it renews.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from pilot.kube.errors import KubeError
from pilot.kube.leader_lock import LeaderRecord, Lock, LockObject
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("leader")


class LeaseDurations(NamedTuple):
    """Seconds: how long a lock holds without being renewed, after how long its holder gives up, and between two attempts."""

    lease: float = 30.0
    give_up: float = 15.0
    attempt: float = 5.0


def never_outranks(_: str) -> bool:
    """Returns False: who leads leads until he does not renew."""
    return False


class LeaderElection:
    """One lock, and one replica that wants it. `leads` says whether it has it.

    `key` is written beside `identity`; `outranks` says of a holder's key whether this replica leads in its place.
    """

    def __init__(
        self,
        lock: Lock,
        identity: str,
        terms: LeaseDurations = LeaseDurations(),
        key: str = "",
        outranks: Callable[[str], bool] = never_outranks,
    ) -> None:
        self.name, self.leads = lock.name, False
        self._lock, self._identity, self._terms, self._key, self._outranks = lock, identity, terms, key, outranks
        self._seen: LeaderRecord | None = None
        self._seen_at = 0.0
        self._held: LockObject | None = None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits until it leads, runs `lead` as long as it does, and again, until it is cancelled; then the lock is given back."""
        try:
            while True:
                await self._acquire()
                _log.info("%s: leading", self.name)
                self.leads = True
                leading = asyncio.create_task(self._lead(lead), name=f"lead {self.name}")
                try:
                    await self._keep()
                    _log.warning("%s: not leading any more", self.name)
                finally:
                    self.leads = False
                    await cancel_tasks(leading)
        finally:
            await self._give_back()

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        try:
            await lead()
        except Exception:
            _log.exception("%s: what the leader does has failed", self.name)

    async def _acquire(self) -> None:
        """Returns when the lock is ours."""
        self._held = None  # who could not renew may have lost it meanwhile
        while True:
            try:
                self._held = await self._take()
            except KubeError as error:
                _log.warning("%s: %s", self.name, error)
            if self._held is not None:
                return
            await asyncio.sleep(self._terms.attempt)

    async def _keep(self) -> None:
        """Renews the lock, until that could not be done for too long or somebody else has it."""
        renewed = asyncio.get_running_loop().time()
        while self._held is not None:
            await asyncio.sleep(self._terms.attempt)
            try:
                async with asyncio.timeout_at(renewed + self._terms.give_up):
                    self._held = await self._take()
                    renewed = asyncio.get_running_loop().time()
            except TimeoutError:
                return
            except KubeError as error:
                _log.warning("%s: %s", self.name, error)
                if asyncio.get_running_loop().time() > renewed + self._terms.give_up:
                    return

    async def _take(self) -> LockObject | None:
        """Returns the lock with us as its holder; None while somebody else is. KubeError where it cannot be read or written."""
        found = await self._lock.read()
        if found is None:
            return await self._write(LeaderRecord(), None)
        holder = found.record.holder_identity
        if (
            holder not in ("", self._identity)
            and not self._has_ended(found.record)
            and not self._outranks(found.record.holder_key)
        ):
            return None
        return await self._write(found.record, found)

    def _has_ended(self, found: LeaderRecord) -> bool:
        """Returns whether a lock has not changed, as we have seen it, for as long as it holds."""
        now = asyncio.get_running_loop().time()
        if found != self._seen:
            self._seen, self._seen_at = found, now
        return now - self._seen_at > (found.lease_duration_seconds or self._terms.lease)

    async def _write(self, record: LeaderRecord, over: LockObject | None) -> LockObject | None:
        """Writes us into a lock; returns it, None where somebody else was faster."""
        now = _micro_time()
        taken = record.holder_identity != self._identity
        return await self._lock.write(
            LeaderRecord(
                self._identity,
                self._key,
                max(1, round(self._terms.lease)),
                now if taken else record.acquire_time,
                now,
                record.leader_transitions + (taken and over is not None),
            ),
            over,
        )

    async def _give_back(self) -> None:
        """Names nobody in the lock any more, so that another replica need not wait until it ends."""
        held, self._held = self._held, None
        if held is None:
            return
        now = _micro_time()
        record = msgspec.structs.replace(
            held.record, holder_identity="", holder_key="", lease_duration_seconds=1, renew_time=now
        )
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._terms.attempt):
                await self._lock.write(record, held)


def _micro_time() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
