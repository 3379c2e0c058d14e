"""Renews a self-signed root before it ends. Several replicas share a store: one that finds a newer root there takes it."""

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
from pilot.lib.log import scope

_log = scope("rootcertrotator")


class Store(Protocol):
    """Keeps one self-signed signer. Both raise KeyMaterialError."""

    def load(self) -> Signer | None: ...
    def save(self, signer: Signer) -> None: ...


class Rotation:
    """Looks every `interval` whether less than `grace_percent` of the root's life is left, first after a random part of one, so that
    replicas do not look at the same moment."""

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
        """Looks forever; to be cancelled. A store that fails is tried again at the next look."""
        await sleep(self._interval * jitter())
        while True:
            try:
                await self.look()
            except KeyMaterialError as error:
                _log.error("the root certificate is not renewed: %s", error)
            await sleep(self._interval)

    async def look(self) -> bool:
        """Takes the root of the store if it is a newer one, renews it if that is due; True if the root changed. KeyMaterialError where
        the store fails, or keeps a root of another key."""
        signer = self._authority.signer
        kept = await asyncio.to_thread(self._store.load)
        if kept is not None and _ends(kept) > _ends(signer):
            others = tuple(root for root in signer.roots if root != signer.certificate)
            self._authority.renew(kept._replace(roots=(*kept.roots, *others)))
            _log.info("took the root certificate that another replica made, valid until %s", _ends(kept))
            return True
        if not renewal_due(signer, self._now(), self._grace):
            return False
        fresh = renewed(signer, self._ttl, self._now())
        await asyncio.to_thread(self._store.save, fresh)
        self._authority.renew(fresh)
        _log.info("renewed the root certificate, valid until %s", _ends(fresh))
        return True


def _ends(signer: Signer) -> datetime.datetime:
    return signer.certificate.not_valid_after_utc
