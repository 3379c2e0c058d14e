"""One kind of one cluster: followed in the version that is preferred of those that the server has."""

from __future__ import annotations

import asyncio
import random

import msgspec

from pilot.config.group_kind import plural_of
from pilot.config.kind import AnyKind
from pilot.ingest.kube_kinds import collection_of, is_built_in
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError, NotFound
from pilot.kube.informer import Informer, Receive, WatchOptions
from pilot.lib.backoff import RetryDelays
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks

_log = scope("kube")


class KubeKind:
    """`follower` follows its collection, in `namespace` where that is named. `settled` is set when the objects that there were have been received,
    or the kind is served in no version that we read."""

    def __init__(
        self,
        client: ApiClient,
        kind: AnyKind,
        receive: Receive,
        pace: WatchOptions,
        choose: random.Random,
        namespace: str = "",
    ) -> None:
        self.settled = asyncio.Event()
        self._client, self._kind, self._pace, self._choose, self._namespace = client, kind, pace, choose, namespace
        self._version = kind.versions[0]
        self.follower = Informer(
            client, collection_of(kind, self._version, namespace), receive, pace, choose, self.settled
        )
        self._look = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to follow."""
        if is_built_in(self._kind):
            self._begin()
        else:
            self._looking = asyncio.create_task(self._keep_looking(), name=f"versions of {self._kind.id}")

    def look_again(self) -> None:
        """Notes that the kind may be served in other versions now."""
        self._look.set()

    async def restart(self) -> None:
        """Reads everything once more, in a version that is looked for anew."""
        await cancel_tasks(self._looking, self._following)
        self._following = None
        self.follower.watch_collection(self.follower.collection)
        self.start()

    async def stop(self) -> None:
        """Ends the following."""
        await cancel_tasks(self._looking, self._following)
        self.settled.set()

    async def forget(self) -> None:
        """Takes back all objects, after `stop`."""
        await self.follower.clear()

    def _begin(self) -> None:
        self._following = asyncio.create_task(self.follower.run(), name=f"follow {self._kind.id}")

    async def _keep_looking(self) -> None:
        """Changes the version that is followed when that which is preferred changes."""
        while True:
            self._look.clear()
            version = await self._find_version()
            if self._following is None or version != self._version:
                await cancel_tasks(self._following)
                self._version = version
                self.follower.watch_collection(collection_of(self._kind, version, self._namespace))
                self._begin()
            await self._look.wait()

    async def _find_version(self) -> str:
        """Returns the version to follow, as soon as there is one: a kind is served a moment after it is defined."""
        attempts = RetryDelays(self._pace.backoff, self._choose)
        while True:
            try:
                for version in self._kind.versions:
                    if await self._is_served(version):
                        return version
                self.settled.set()
            except KubeError as error:
                _log.warning("%s: %s", self._kind.id, error)
            await asyncio.sleep(attempts.next_delay())

    async def _is_served(self, version: str) -> bool:
        """Returns whether the server has the kind in a version."""
        try:
            found = await self._client.call("GET", f"/apis/{self._kind.id.group}/{version}")
        except NotFound:
            return False
        return any(
            resource.name == plural_of(self._kind.id)
            for resource in msgspec.json.decode(found, type=_ResourceList).resources
        )


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()
