"""Watches the services of a Consul agent with blocking queries, which return when the result changes.

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
"""The instances of one service, as /v1/health/service returns them."""


class CatalogWatch:
    """Calls `on_change` with a service name and its instances whenever they change, with none if the service is gone.

    `synced` is set once all initial services have been reported.
    """

    def __init__(self, url: str, on_change: Callable[[str, Instances], None], headers: Mapping[str, str] = {}) -> None:
        self._url, self._on_change, self._headers = url.rstrip("/"), on_change, dict(headers)
        self.synced = asyncio.Event()
        self._services: dict[str, asyncio.Task[None]] = {}
        self._unsynced: set[str] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=90)) as session:
            try:
                await self._watch(
                    session, "/v1/catalog/services", lambda services: self._update_services(session, services)
                )
            finally:
                for task in self._services.values():
                    task.cancel()

    def _update_services(self, session: aiohttp.ClientSession, names: Mapping[str, Any]) -> None:
        """Start and stop watches so that they match the list of services."""
        for name in [name for name in self._services if name not in names]:
            self._services.pop(name).cancel()
            self._unsynced.discard(name)
            self._on_change(name, ())
        for name in names:
            if name not in self._services:
                self._unsynced.add(name)
                self._services[name] = asyncio.create_task(self._watch_service(session, name))
        self._check_synced()

    async def _watch_service(self, session: aiohttp.ClientSession, name: str) -> None:
        def update(instances: Instances) -> None:
            self._on_change(name, instances)
            self._unsynced.discard(name)
            self._check_synced()

        await self._watch(session, f"/v1/health/service/{name}", update)

    def _check_synced(self) -> None:
        if not self._unsynced:
            self.synced.set()

    async def _watch(self, session: aiohttp.ClientSession, path: str, on_result: Callable[[Any], None]) -> None:
        """Repeat a blocking query. While Consul does not respond, the last result stays in use."""
        index = 0
        while True:
            try:
                async with session.get(self._url + path, params={"index": str(index), "wait": WAIT}) as response:
                    response.raise_for_status()
                    result, new_index = await response.json(), int(response.headers.get("X-Consul-Index", 0))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                _log.warning("%s%s: %s", self._url, path, error or type(error).__name__)
                index = 0
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if new_index != index or not index:
                on_result(result)
            # An index that decreases means that the server was restarted.
            index = new_index if new_index >= index else 0
