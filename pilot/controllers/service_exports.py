"""A ServiceExport for each Service, so that all clusters see it. https://multicluster.sigs.k8s.io/concepts/multicluster-services-api/"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from pilot.config.group_kind import MULTICLUSTER
from pilot.controllers.reconciler import Upkeep
from pilot.kube.client import ApiClient
from pilot.kube.errors import ApiError, Conflict, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import NamespacedName, ObjectChange
from pilot.lib.tasks import cancel_tasks

VERSION = "v1alpha1"
SERVICES = WatchedCollection("/api/v1/services", metadata_only=True)


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class ServiceExports:
    """Makes them while it runs. `is_local` says of a Service, by namespace and name, whether it is never reached across clusters. One that
    somebody deletes is made again with the next start; with its Service it goes by itself."""

    def __init__(
        self, client: ApiClient, is_local: Callable[[str, str], bool], pace: WatchOptions, choose: random.Random
    ) -> None:
        self._client, self._is_local, self._pace, self._choose = client, is_local, pace, choose
        self._services: dict[NamespacedName, str] = {}
        self._upkeep: Upkeep[NamespacedName] = Upkeep("ServiceExport of", self._settle, pace.backoff, choose)

    async def run(self) -> None:
        """Follows Services until it is cancelled."""
        self._services = {}
        follower = Informer(self._client, SERVICES, self._receive, self._pace, self._choose)
        task = asyncio.create_task(follower.run(), name="follow services that are exported")
        try:
            await self._upkeep.run()
        finally:
            await cancel_tasks(task)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            before = self._services.pop(change.name, None)
            if change.raw is None:
                continue
            uid = self._services[change.name] = msgspec.json.decode(change.raw, type=_Object).metadata.uid
            if uid != before:
                self._upkeep.look_at((change.name,))

    async def _settle(self, name: NamespacedName) -> None:
        uid = self._services.get(name)
        if uid is None or self._is_local(name.namespace, name.name):
            return
        owner = {"apiVersion": "v1", "kind": "Service", "name": name.name, "uid": uid}
        metadata = {"name": name.name, "namespace": name.namespace, "ownerReferences": [owner]}
        made = {"apiVersion": f"{MULTICLUSTER}/{VERSION}", "kind": "ServiceExport", "metadata": metadata}
        path = f"/apis/{MULTICLUSTER}/{VERSION}/namespaces/{name.namespace}/serviceexports"
        try:
            await self._client.call("POST", path, body=msgspec.json.encode(made))
        except (Conflict, NotFound):  # it is there, or the namespace has just gone
            return
        except ApiError as error:
            if error.code != 403:  # a namespace that ends
                raise
