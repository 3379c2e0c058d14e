"""Creates a ServiceExport for each Service, so that all clusters can reach it.

https://multicluster.sigs.k8s.io/concepts/multicluster-services-api/
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from pilot.controllers.reconciler import Reconciler
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, Conflict, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.tasks import cancel_tasks

SERVICES = WatchedCollection("/api/v1/services", metadata_only=True)


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class ServiceExportController:
    """Creates ServiceExports. Each is owned by its Service.

    `api_version` is that of ServiceExports. `is_local` returns whether the Service with a namespace and a name is
    cluster-local. Such a Service is not exported. If a user deletes a ServiceExport, it is created again at the next
    startup.
    """

    def __init__(
        self,
        client: ApiClient,
        api_version: str,
        is_local: Callable[[str, str], bool],
        options: WatchOptions,
        rng: random.Random,
    ) -> None:
        self._client, self._api_version, self._is_local = client, api_version, is_local
        self._options, self._rng = options, rng
        self._services: dict[NamespacedName, str] = {}
        self._reconciler: Reconciler[NamespacedName] = Reconciler(
            "ServiceExport of", self._reconcile, options.backoff, rng
        )

    async def run(self) -> None:
        """Watch Services until cancelled."""
        self._services = {}
        informer = Informer(self._client, SERVICES, self._receive, self._options, self._rng)
        task = asyncio.create_task(informer.run(), name="watch Services to export")
        try:
            await self._reconciler.run()
        finally:
            await cancel_tasks(task)

    async def _receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            previous_uid = self._services.pop(change.name, None)
            if change.raw is None:
                continue
            uid = self._services[change.name] = msgspec.json.decode(change.raw, type=_Object).metadata.uid
            if uid != previous_uid:
                self._reconciler.enqueue((change.name,))

    async def _reconcile(self, name: NamespacedName) -> None:
        uid = self._services.get(name)
        if uid is None or self._is_local(name.namespace, name.name):
            return
        owner = {"apiVersion": "v1", "kind": "Service", "name": name.name, "uid": uid}
        metadata = {"name": name.name, "namespace": name.namespace, "ownerReferences": [owner]}
        plain = {"apiVersion": self._api_version, "kind": "ServiceExport", "metadata": metadata}
        path = f"/apis/{self._api_version}/namespaces/{name.namespace}/serviceexports"
        try:
            await self._client.call("POST", path, body=msgspec.json.encode(plain))
        except (Conflict, NotFound):  # it exists already, or the namespace was deleted
            return
        except ApiError as error:
            if error.code != 403:  # the namespace is terminating
                raise
