"""A remote cluster, which is read with its own credentials."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from pilot.ingest.cluster.kube_source import KubeSource
from pilot.kube.api_access import Credentials
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError
from pilot.kube.informer import WatchOptions
from pilot.lib.backoff import RetryDelays
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("secretcontroller")
Beside = Callable[[], Coroutine[Any, Any, None]]
StatusCallback = Callable[[str, str], None]
"""Callback whose arguments are a cluster and its sync status: syncing, synced, timeout or closed."""


class RemoteCluster:
    """A cluster that `source` reads with `client`.

    `kubeconfig` contains the credentials. `beside` runs as a task while the cluster is read.
    """

    def __init__(
        self,
        client: ApiClient,
        source: KubeSource,
        pace: WatchOptions,
        rng: random.Random,
        on_status: StatusCallback,
        beside: Beside | None = None,
    ) -> None:
        self.client, self.kubeconfig = client, b""
        self._beside = beside
        self._running: asyncio.Task[None] | None = None
        self._source, self._pace, self._rng, self._on_status = source, pace, rng, on_status
        self._syncing: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start reading the cluster."""
        self._on_status(self._source.cluster, "syncing")
        await self._source.start()
        self._syncing = asyncio.create_task(self._sync(), name=f"read cluster {self._source.cluster}")
        if self._beside is not None:
            self._running = asyncio.create_task(self._beside(), name=f"write into cluster {self._source.cluster}")

    async def wait(self, seconds: float) -> None:
        """Wait until the existing objects have been read, for at most `seconds`. 0 means no limit."""
        if self._syncing is None:
            return
        await asyncio.wait((self._syncing,), timeout=seconds or None)
        if not self._syncing.done():
            _log.warning(
                "cluster %s did not sync within %g s; continuing without its missing objects",
                self._source.cluster,
                seconds,
            )
            self._on_status(self._source.cluster, "timeout")

    def change(self, credentials: Credentials) -> None:
        """Switch to other credentials as soon as the server accepts them."""
        if self._changing is not None:
            self._changing.cancel()
        self._changing = asyncio.create_task(
            self._change(credentials), name=f"other credentials of {self._source.cluster}"
        )

    async def stop(self) -> None:
        """Stop reading the cluster. The objects remain in the tables."""
        await cancel_tasks(self._syncing, self._changing, self._running)
        await self._source.stop()
        await self.client.close()
        self._on_status(self._source.cluster, "closed")

    async def forget(self) -> None:
        """Remove all objects. Call this after `stop`."""
        await self._source.forget()

    async def _sync(self) -> None:
        await self._source.synced()
        _log.info("cluster %s synced", self._source.cluster)
        self._on_status(self._source.cluster, "synced")

    async def _change(self, credentials: Credentials) -> None:
        attempts = RetryDelays(self._pace.backoff, self._rng)
        probe = ApiClient(credentials, timeouts=self.client.timeouts)
        try:
            while True:
                try:
                    await probe.call("GET", "/api/v1/namespaces", {"limit": "1"})
                    break
                except KubeError as error:
                    _log.warning("cluster %s: the new credentials do not work yet: %s", self._source.cluster, error)
                await asyncio.sleep(attempts.next_delay())
        finally:
            await probe.close()
        await self.client.use_credentials(credentials)
        await self._source.restart()
