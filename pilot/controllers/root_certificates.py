"""Writes a ConfigMap with the mesh's root certificates and one with revoked certificates into every namespace.

Pods verify the control plane with these roots.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pilot.controllers.reconciler import Reconciler
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, Conflict, NotFound
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.tasks import cancel_tasks

EXCLUDED_NAMESPACES = frozenset({"kube-public", "kube-node-lease", "local-path-storage"})
LABELS = {"istio.io/config": "true"}
MERGE_PATCH = "application/merge-patch+json"
ConfigMapKey = tuple[str, str]
"""Namespace and name of a ConfigMap."""


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


_read = msgspec.json.Decoder(_Object).decode


class RootCertificateController:
    """Writes ConfigMaps.

    `desired` returns the data of each ConfigMap, keyed by name. `is_selected` returns whether a namespace with a name
    and labels is part of the mesh.
    """

    def __init__(
        self,
        client: ApiClient,
        desired: Callable[[], Mapping[str, Mapping[str, str]]],
        is_selected: Callable[[str, Mapping[str, str]], bool],
        options: WatchOptions,
        rng: random.Random,
    ) -> None:
        self._client, self._desired, self._is_selected, self._options, self._rng = (
            client,
            desired,
            is_selected,
            options,
            rng,
        )
        self._namespaces: dict[str, _Metadata] = {}
        self._existing: dict[ConfigMapKey, Mapping[str, str]] = {}
        self._reconciler: Reconciler[ConfigMapKey] = Reconciler(
            "root certificates of", self._reconcile, options.backoff, rng
        )

    def resync(self) -> None:
        """Enqueue the ConfigMaps of all namespaces."""
        self._reconciler.enqueue((namespace, name) for namespace in self._namespaces for name in self._desired())

    async def run(self) -> None:
        """Write ConfigMaps until cancelled."""
        self._namespaces, self._existing = {}, {}
        informers = [
            self._informer(WatchedCollection("/api/v1/namespaces", metadata_only=True), self._receive_namespaces)
        ]
        informers += [
            self._informer(WatchedCollection("/api/v1/configmaps", fields=f"metadata.name={name}"), self._receive_maps)
            for name in self._desired()
        ]
        tasks = [asyncio.create_task(informer.run(), name="watch root certificates") for informer in informers]
        try:
            for informer in informers:
                await informer.synced.wait()
            self.resync()
            await self._reconciler.run()
        finally:
            await cancel_tasks(*tasks)

    def _informer(self, collection: WatchedCollection, receive: Receive) -> Informer:
        return Informer(self._client, collection, receive, self._options, self._rng)

    async def _receive_namespaces(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            if change.raw is None:
                self._namespaces.pop(change.name.name, None)
            else:
                self._namespaces[change.name.name] = _read(change.raw).metadata
                self._reconciler.enqueue((change.name.name, name) for name in self._desired())

    async def _receive_maps(self, changes: Sequence[ObjectChange]) -> None:
        for (namespace, name), raw in changes:
            if raw is None:
                self._existing.pop((namespace, name), None)
            else:
                self._existing[namespace, name] = _read(raw).data or {}
            self._reconciler.enqueue([(namespace, name)])

    async def _reconcile(self, key: ConfigMapKey) -> None:
        """Write one ConfigMap if its data differs."""
        namespace, name = key
        data, metadata = self._desired().get(name), self._namespaces.get(namespace)
        if data is None or metadata is None or metadata.deletion_timestamp is not None:
            return
        existing = self._existing.get(key)
        if (
            namespace in EXCLUDED_NAMESPACES
            or not self._is_selected(namespace, metadata.labels or {})
            or existing == data
        ):
            return
        try:
            await self._write(key, data, existing is None)
        except ApiError as error:
            if error.code != 403:  # the namespace is terminating, or we have no permission there
                raise

    async def _write(self, key: ConfigMapKey, data: Mapping[str, str], is_new: bool) -> None:
        collection = f"/api/v1/namespaces/{key[0]}/configmaps"
        metadata = {"name": key[1], "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        try:
            if is_new:
                await self._client.call("POST", collection, body=msgspec.json.encode(body))
                return
        except Conflict:  # created meanwhile
            pass
        except NotFound:  # the namespace was deleted
            return
        removed_keys = dict.fromkeys(self._existing.get(key, {}).keys() - data.keys())
        patch = {"metadata": {"labels": LABELS}, "data": {**removed_keys, **data}}
        await self._client.call(
            "PATCH", f"{collection}/{key[1]}", body=msgspec.json.encode(patch), content_type=MERGE_PATCH
        )
