"""One other cluster: read by its own credentials, in its own time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from pilot.ingest.kube_source import KubeSource
from pilot.kube.access import Credentials
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import RetryDelays
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("secretcontroller")
Beside = Callable[[], Coroutine[Any, Any, None]]
Told = Callable[[str, str], None]
"""Is given a cluster, and how its reading is: syncing, synced, timeout or closed."""


class RemoteCluster:
    """A cluster that `source` reads by `client`; `kubeconfig` is what its credentials were made of. `beside` runs from its start to its end."""

    def __init__(
        self,
        client: ApiClient,
        source: KubeSource,
        pace: WatchOptions,
        choose: random.Random,
        told: Told,
        beside: Beside | None = None,
    ) -> None:
        self.client, self.kubeconfig = client, b""
        self._beside = beside
        self._running: asyncio.Task[None] | None = None
        self._source, self._pace, self._choose, self._told = source, pace, choose, told
        self._syncing: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to read."""
        self._told(self._source.cluster, "syncing")
        await self._source.start()
        self._syncing = asyncio.create_task(self._sync(), name=f"read cluster {self._source.cluster}")
        if self._beside is not None:
            self._running = asyncio.create_task(self._beside(), name=f"write into cluster {self._source.cluster}")

    async def wait(self, seconds: float) -> None:
        """Returns when everything has been read, or after so many seconds; 0 for as long as it takes."""
        if self._syncing is None:
            return
        await asyncio.wait((self._syncing,), timeout=seconds or None)
        if not self._syncing.done():
            _log.warning(
                "cluster %s has not been read within %g s: going on without what is missing",
                self._source.cluster,
                seconds,
            )
            self._told(self._source.cluster, "timeout")

    def change(self, credentials: Credentials) -> None:
        """Goes on by other credentials as soon as the server answers to them; until then by those before."""
        if self._changing is not None:
            self._changing.cancel()
        self._changing = asyncio.create_task(
            self._change(credentials), name=f"other credentials of {self._source.cluster}"
        )

    async def stop(self) -> None:
        """Reads nothing any more; what was read stays."""
        await cancel_tasks(self._syncing, self._changing, self._running)
        await self._source.stop()
        await self.client.close()
        self._told(self._source.cluster, "closed")

    async def forget(self) -> None:
        """Takes back all that was read, after `stop`."""
        await self._source.forget()

    async def _sync(self) -> None:
        await self._source.synced()
        _log.info("cluster %s has been read", self._source.cluster)
        self._told(self._source.cluster, "synced")

    async def _change(self, credentials: Credentials) -> None:
        attempts = RetryDelays(self._pace.backoff, self._choose)
        probe = ApiClient(credentials, timeouts=self.client.timeouts)
        try:
            while True:
                try:
                    await probe.call("GET", "/api/v1/namespaces", {"limit": "1"})
                    break
                except KubeError as error:
                    _log.warning(
                        "cluster %s: its other credentials cannot be used yet: %s", self._source.cluster, error
                    )
                await asyncio.sleep(attempts.next_delay())
        finally:
            await probe.close()
        await self.client.use_credentials(credentials)
        await self._source.restart()
