"""Signs the certificate requests of different identities in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ca.service import CallerPostponed, Sign
from pilot.lib.fair_slots import FairSlots, NoSlot

MOST_WAITING = 5000
"""Maximum number of requests that wait."""
BUILT_IN = 8, 8
"""Maximum number of certificates that the built-in authority signs in one iteration of the event loop, for all
identities and for one. A signature takes about 1 ms."""
EXTERNAL = 64, 16
"""Maximum number of requests that Kubernetes signers process at a time, for all identities and for one.

A signer may take up to a minute, or never answer if the request names one that does not exist.
"""


class FairSigning:
    """Signs requests with `sign`. At most `slots` requests are processed at a time, and `share` of one identity.

    `on_rejected` is called for each request that is rejected because too many wait.
    """

    def __init__(self, sign: Sign, slots: int, share: int, on_rejected: Callable[[], None]) -> None:
        self._sign, self._on_rejected = sign, on_rejected
        self._slots = FairSlots(slots, MOST_WAITING, share)

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Return the result of `sign`. Raise CallerPostponed if too many requests of the identity wait."""
        try:
            await self._slots.acquire(identities[0])
        except NoSlot:
            self._on_rejected()
            raise CallerPostponed(f"more than {MOST_WAITING} requests wait for a signature") from None
        try:
            return await self._sign(csr, identities, seconds, signer)
        finally:
            # In the next iteration of the event loop, so that the slots limit the signatures in one iteration.
            asyncio.get_running_loop().call_soon(self._slots.release, identities[0])
