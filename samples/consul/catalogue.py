"""Follows the services of a Consul agent by blocking queries, which return when something has changed.

https://developer.hashicorp.com/consul/api-docs/features/blocking
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

WAIT = "55s"
RETRY_SECONDS = 1.0
_log = logging.getLogger("consul")
Instances = Sequence[Mapping[str, Any]]
"""The instances of one service, as /v1/health/service has them."""


class Catalogue:
    """Calls `changed` with a name and the instances of that service, none where it has gone, whenever they change. `synced` is set once all
    services that there were have been told of."""

    def __init__(self, url: str, changed: Callable[[str, Instances], None], headers: Mapping[str, str] = {}) -> None:
        self._url, self._changed, self._headers = url.rstrip("/"), changed, dict(headers)
        self.synced = asyncio.Event()
        self._services: dict[str, asyncio.Task[None]] = {}
        self._waiting: set[str] = set()

    async def run(self) -> None:
        """Follows until it is cancelled."""
        async with aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=90)) as session:
            try:
                await self._follow(session, "/v1/catalog/services", lambda found: self._take_list(session, found))
            finally:
                for task in self._services.values():
                    task.cancel()

    def _take_list(self, session: aiohttp.ClientSession, names: Mapping[str, Any]) -> None:
        """Follows the services of a list, and no others."""
        for name in [name for name in self._services if name not in names]:
            self._services.pop(name).cancel()
            self._waiting.discard(name)
            self._changed(name, ())
        for name in names:
            if name not in self._services:
                self._waiting.add(name)
                self._services[name] = asyncio.create_task(self._follow_service(session, name))
        self._settle()

    async def _follow_service(self, session: aiohttp.ClientSession, name: str) -> None:
        def take(instances: Instances) -> None:
            self._changed(name, instances)
            self._waiting.discard(name)
            self._settle()

        await self._follow(session, f"/v1/health/service/{name}", take)

    def _settle(self) -> None:
        if not self._waiting:
            self.synced.set()

    async def _follow(self, session: aiohttp.ClientSession, path: str, take: Callable[[Any], None]) -> None:
        """Asks again and again; what was there stays while there is no answer."""
        index = 0
        while True:
            try:
                async with session.get(self._url + path, params={"index": str(index), "wait": WAIT}) as response:
                    response.raise_for_status()
                    found, now = await response.json(), int(response.headers.get("X-Consul-Index", 0))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                _log.warning("%s%s: %s", self._url, path, error or type(error).__name__)
                index = 0
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if now != index or not index:
                take(found)
            index = now if now >= index else 0  # one that goes backwards is of a server that began anew
