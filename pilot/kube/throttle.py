"""A limit of the requests a second, so that a control plane does not crowd out others at an API server."""

from __future__ import annotations

import asyncio


class Throttle:
    """Lets `burst` requests through at once, and `rate` a second after that. A rate of 0 is no limit."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, max(burst, 1)
        self._free_at = float("-inf")

    async def turn(self) -> None:
        """Returns when the next request may be made."""
        if self._rate <= 0:
            return
        now = asyncio.get_running_loop().time()
        step = 1.0 / self._rate
        self._free_at = max(self._free_at, now - (self._burst - 1) * step) + step
        if self._free_at - step > now:
            await asyncio.sleep(self._free_at - step - now)
