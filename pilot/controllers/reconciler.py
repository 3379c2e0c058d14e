"""Keeps things as they should be: each that may have changed is looked at, and again after a while where that fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from pilot.kube.errors import KubeError
from pilot.lib.backoff import Backoff, RetryDelays
from pilot.lib.log import scope

K = TypeVar("K", bound=Hashable)
_log = scope("kube")


class Upkeep(Generic[K]):
    """`settle` makes one thing as it should be; what it raises is logged, and it is tried again. `look_at` marks things; `run` settles those
    marked."""

    def __init__(
        self, name: str, settle: Callable[[K], Awaitable[None]], backoff: Backoff, choose: random.Random
    ) -> None:
        self._name, self._settle, self._backoff, self._choose = name, settle, backoff, choose
        self._marked: dict[K, None] = {}
        self._failed: dict[K, RetryDelays] = {}
        self._news = asyncio.Event()

    def look_at(self, things: Iterable[K]) -> None:
        """Marks things that may not be as they should."""
        self._marked.update(dict.fromkeys(things))
        if self._marked:
            self._news.set()

    async def run(self) -> None:
        """Settles what is marked, one after another, until it is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._marked:
                thing = next(iter(self._marked))
                del self._marked[thing]
                await self._settle_one(thing)

    async def _settle_one(self, thing: K) -> None:
        try:
            await self._settle(thing)
        except KubeError as error:
            _log.warning("%s %s: %s", self._name, thing, error)
            self._look_again(thing)
        except Exception:  # a bug of ours: it must not end the upkeep of everything else
            _log.error("%s %s cannot be looked after", self._name, thing, exc_info=True)
            self._look_again(thing)
        else:
            self._failed.pop(thing, None)

    def _look_again(self, thing: K) -> None:
        attempts = self._failed.setdefault(thing, RetryDelays(self._backoff, self._choose))
        asyncio.get_running_loop().call_later(attempts.next_delay(), self.look_at, (thing,))
