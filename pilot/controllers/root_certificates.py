"""The ConfigMap with the roots of the mesh in every namespace, from which pods trust the control plane, and that with revoked certificates."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pilot.controllers.reconciler import Upkeep
from pilot.kube.client import ApiClient
from pilot.kube.errors import ApiError, Conflict, NotFound
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.wire import ObjectChange
from pilot.lib.tasks import cancel_tasks

LEFT_OUT = frozenset({"kube-public", "kube-node-lease", "local-path-storage"})
LABELS = {"istio.io/config": "true"}
MERGE_PATCH = "application/merge-patch+json"
Place = tuple[str, str]
"""A namespace and the name of a ConfigMap in it."""


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


_read = msgspec.json.Decoder(_Object).decode


class RootCertificates:
    """Writes them while it runs. `wanted` returns the data of each ConfigMap by its name, `selected` whether a namespace with some labels counts.

    It is told by `changed` that one of them gives something else now.
    """

    def __init__(
        self,
        client: ApiClient,
        wanted: Callable[[], Mapping[str, Mapping[str, str]]],
        selected: Callable[[str, Mapping[str, str]], bool],
        pace: WatchOptions,
        choose: random.Random,
    ) -> None:
        self._client, self._wanted, self._selected, self._pace, self._choose = client, wanted, selected, pace, choose
        self._namespaces: dict[str, _Metadata] = {}
        self._there: dict[Place, Mapping[str, str]] = {}
        self._upkeep: Upkeep[Place] = Upkeep("root certificates of", self._settle, pace.backoff, choose)

    def changed(self) -> None:
        """Looks at every namespace again."""
        self._upkeep.look_at((namespace, name) for namespace in self._namespaces for name in self._wanted())

    async def run(self) -> None:
        """Keeps the ConfigMaps as they should be until it is cancelled."""
        self._namespaces, self._there = {}, {}
        followers = [
            self._follow(WatchedCollection("/api/v1/namespaces", metadata_only=True), self._receive_namespaces)
        ]
        followers += [
            self._follow(WatchedCollection("/api/v1/configmaps", fields=f"metadata.name={name}"), self._receive_maps)
            for name in self._wanted()
        ]
        tasks = [asyncio.create_task(follower.run(), name="follow root certificates") for follower in followers]
        try:
            for follower in followers:
                await follower.synced.wait()
            self.changed()
            await self._upkeep.run()
        finally:
            await cancel_tasks(*tasks)

    def _follow(self, collection: WatchedCollection, receive: Receive) -> Informer:
        return Informer(self._client, collection, receive, self._pace, self._choose)

    async def _receive_namespaces(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            if change.raw is None:
                self._namespaces.pop(change.name.name, None)
            else:
                self._namespaces[change.name.name] = _read(change.raw).metadata
                self._upkeep.look_at((change.name.name, name) for name in self._wanted())

    async def _receive_maps(self, changes: Sequence[ObjectChange]) -> None:
        for (namespace, name), raw in changes:
            if raw is None:
                self._there.pop((namespace, name), None)
            else:
                self._there[namespace, name] = _read(raw).data or {}
            self._upkeep.look_at([(namespace, name)])

    async def _settle(self, place: Place) -> None:
        """Writes one ConfigMap, where it is not as it should be."""
        namespace, name = place
        data, found = self._wanted().get(name), self._namespaces.get(namespace)
        if data is None or found is None or found.deletion_timestamp is not None or namespace in LEFT_OUT:
            return
        there = self._there.get(place)
        if not self._selected(namespace, found.labels or {}) or there == data:
            return
        try:
            await self._write(place, data, there is None)
        except ApiError as error:
            if error.code != 403:  # a namespace that ends, or one that we may not write in
                raise

    async def _write(self, place: Place, data: Mapping[str, str], new: bool) -> None:
        collection = f"/api/v1/namespaces/{place[0]}/configmaps"
        metadata = {"name": place[1], "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        try:
            if new:
                await self._client.call("POST", collection, body=msgspec.json.encode(body))
                return
        except Conflict:  # it has just been made
            pass
        except NotFound:  # the namespace has just gone
            return
        surplus = dict.fromkeys(self._there.get(place, {}).keys() - data.keys())
        patch = {"metadata": {"labels": LABELS}, "data": {**surplus, **data}}
        await self._client.call(
            "PATCH", f"{collection}/{place[1]}", body=msgspec.json.encode(patch), content_type=MERGE_PATCH
        )
