"""A work queue that reconciles keys, and the protocol of controllers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from pilot.kube.api_errors import KubeError
from pilot.lib.backoff import Backoff, RetryDelays
from pilot.lib.logging.log import scope

K = TypeVar("K", bound=Hashable)
_log = scope("kube")


class Controller(Protocol):
    """Writes objects while it runs. `resync` enqueues all of them."""

    def resync(self) -> None: ...
    async def run(self) -> None: ...


class ControllerGroup:
    """Runs several controllers as one."""

    def __init__(self, *controllers: Controller) -> None:
        self._controllers = controllers

    def resync(self) -> None:
        """Resync all controllers."""
        for controller in self._controllers:
            controller.resync()

    async def run(self) -> None:
        """Run all controllers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run())


class Reconciler(Generic[K]):
    """Work queue that reconciles keys one at a time.

    `enqueue` adds keys; `run` calls `reconcile` for each. A failed reconcile is logged and retried with backoff.
    """

    def __init__(
        self, name: str, reconcile: Callable[[K], Awaitable[None]], backoff: Backoff, rng: random.Random
    ) -> None:
        self._name, self._reconcile, self._backoff, self._rng = name, reconcile, backoff, rng
        self._queue: dict[K, None] = {}
        self._retries: dict[K, RetryDelays] = {}
        self._has_work = asyncio.Event()

    def enqueue(self, keys: Iterable[K]) -> None:
        """Add keys to the queue. A key that is already queued is ignored."""
        self._queue.update(dict.fromkeys(keys))
        if self._queue:
            self._has_work.set()

    async def run(self) -> None:
        """Reconcile queued keys until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                key = next(iter(self._queue))
                del self._queue[key]
                await self._reconcile_key(key)

    async def _reconcile_key(self, key: K) -> None:
        try:
            await self._reconcile(key)
        except KubeError as error:
            _log.warning("%s %s: %s", self._name, key, error)
            self._retry_later(key)
        except Exception:  # a bug of ours: the other keys must go on
            _log.error("cannot reconcile %s %s", self._name, key, exc_info=True)
            self._retry_later(key)
        else:
            self._retries.pop(key, None)

    def _retry_later(self, key: K) -> None:
        retries = self._retries.setdefault(key, RetryDelays(self._backoff, self._rng))
        asyncio.get_running_loop().call_later(retries.next_delay(), self.enqueue, (key,))
