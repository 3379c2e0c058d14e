"""Watches a kind in a cluster, in the most preferred version that the API server serves."""

from __future__ import annotations

import asyncio
import random

import msgspec

from pilot.config.group_kind import plural_of
from pilot.config.kind import AnyKind
from pilot.ingest.cluster.watched_kinds import collection_of
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError, NotFound
from pilot.kube.informer import Informer, Receive, WatchOptions
from pilot.lib.backoff import RetryDelays
from pilot.lib.logging.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("kube")


class KindWatch:
    """A watch of one kind. It is limited to `namespace` unless that is "".

    `settled` is set once the existing objects have been received, or if no supported version is served.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: AnyKind,
        receive: Receive,
        pace: WatchOptions,
        rng: random.Random,
        namespace: str = "",
    ) -> None:
        self.settled = asyncio.Event()
        self._client, self._kind, self._pace, self._rng, self._namespace = client, kind, pace, rng, namespace
        self._version = kind.versions[0]
        self.informer = Informer(
            client, collection_of(kind, self._version, namespace), receive, pace, rng, self.settled
        )
        self._recheck = asyncio.Event()
        self._version_task: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the watch."""
        if self._kind.is_built_in:
            self._begin()
        else:
            self._version_task = asyncio.create_task(self._track_version(), name=f"versions of {self._kind.id}")

    def recheck(self) -> None:
        """Check again which versions are served, because they may have changed."""
        self._recheck.set()

    async def restart(self) -> None:
        """Select the version again, and list all objects."""
        await cancel_tasks(self._version_task, self._watch_task)
        self._watch_task = None
        self.informer.watch_collection(self.informer.collection)
        self.start()

    async def stop(self) -> None:
        """Stop the watch."""
        await cancel_tasks(self._version_task, self._watch_task)
        self.settled.set()

    async def forget(self) -> None:
        """Remove all objects. Call this after `stop`."""
        await self.informer.clear()

    def _begin(self) -> None:
        self._watch_task = asyncio.create_task(self.informer.run(), name=f"watch {self._kind.id}")

    async def _track_version(self) -> None:
        """Switch to another version whenever the preferred version changes."""
        while True:
            self._recheck.clear()
            version = await self._find_version()
            if self._watch_task is None or version != self._version:
                await cancel_tasks(self._watch_task)
                self._version = version
                self.informer.watch_collection(collection_of(self._kind, version, self._namespace))
                self._begin()
            await self._recheck.wait()

    async def _find_version(self) -> str:
        """Return the version to watch.

        Retry until a version is served, which may take a moment after the kind is defined.
        """
        attempts = RetryDelays(self._pace.backoff, self._rng)
        while True:
            try:
                for version in self._kind.versions:
                    if await self._is_served(version):
                        return version
                self.settled.set()
            except KubeError as error:
                _log.warning("cannot determine the served versions of %s: %s", self._kind.id, error)
            await asyncio.sleep(attempts.next_delay())

    async def _is_served(self, version: str) -> bool:
        """Return whether the server serves the kind in a version."""
        try:
            response = await self._client.call("GET", f"/apis/{self._kind.id.group}/{version}")
        except NotFound:
            return False
        return any(
            resource.name == plural_of(self._kind.id)
            for resource in msgspec.json.decode(response, type=_ResourceList).resources
        )


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()
