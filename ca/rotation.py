"""Renewal of a self-signed root before it expires.

Replicas share a store. If the store has a newer root, they adopt it.
"""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from ca.authority import Authority, Clock, utc_now
from ca.errors import KeyMaterialError
from ca.self_signed import renewal_due, renewed
from ca.signer import Signer
from pilot.lib.logging.log import scope

_log = scope("rootcertrotator")


class Store(Protocol):
    """Storage of one self-signed signer. Both methods raise KeyMaterialError."""

    def load(self) -> Signer | None: ...
    def save(self, signer: Signer) -> None: ...


class Rotation:
    """Renews the root when less than `grace_percent` of its lifetime remains.

    The root is checked every `interval`. The first check is after a random part of the interval, so that replicas do
    not check at the same time.
    """

    def __init__(
        self,
        authority: Authority,
        store: Store,
        ttl: datetime.timedelta,
        interval: datetime.timedelta,
        grace_percent: float,
        now: Clock = utc_now,
    ) -> None:
        self._authority, self._store, self._ttl = authority, store, ttl
        self._interval, self._grace, self._now = interval.total_seconds(), grace_percent, now

    async def run(
        self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep, jitter: Callable[[], float] = random.random
    ) -> None:
        """Check until cancelled. If the store fails, it is tried again at the next check."""
        await sleep(self._interval * jitter())
        while True:
            try:
                await self.check()
            except KeyMaterialError as error:
                _log.error("failed to renew the root certificate: %s", error)
            await sleep(self._interval)

    async def check(self) -> bool:
        """Adopt a newer root from the store, or renew the root if that is due. Return whether the root changed.

        Raise KeyMaterialError if the store fails or contains a root with another key.
        """
        signer = self._authority.signer
        stored = await asyncio.to_thread(self._store.load)
        if stored is not None and _expiry(stored) > _expiry(signer):
            others = tuple(root for root in signer.roots if root != signer.certificate)
            self._authority.renew(stored._replace(roots=(*stored.roots, *others)))
            _log.info("adopted the root certificate of another replica, valid until %s", _expiry(stored))
            return True
        if not renewal_due(signer, self._now(), self._grace):
            return False
        fresh = renewed(signer, self._ttl, self._now())
        await asyncio.to_thread(self._store.save, fresh)
        self._authority.renew(fresh)
        _log.info("renewed the root certificate, valid until %s", _expiry(fresh))
        return True


def _expiry(signer: Signer) -> datetime.datetime:
    return signer.certificate.not_valid_after_utc
