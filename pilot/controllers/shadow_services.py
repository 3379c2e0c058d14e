"""The Services of InferencePools: each pool that a Gateway has a route to has one, by which its pods are found.

It belongs to the pool, with which the API server takes it away. A Service of its name that nobody made for a pool is left as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilot.config.kinds.gateway_api import INFERENCE_POOL
from pilot.config.object import Object, ObjectKey
from pilot.controllers.deployed_objects import APPLY_PATCH
from pilot.controllers.reconciler import Upkeep
from pilot.controllers.watched_keys import WatchedKeys
from pilot.derive import Node
from pilot.kube.client import ApiClient
from pilot.kube.errors import NotFound
from pilot.lib.backoff import Backoff
from pilot.mesh.lowering.gateway_api.inference_pools import FIRST_PORT
from pilot.mesh.lowering.gateway_api.pool_gateways import ShadowService, pool_keys, shadow_service
from pilot.mesh.tables.database import Mesh

MANAGER = "istio.io/inference-pool-controller"


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class ShadowServices:
    """Keeps them while it runs. `path` returns the path of a pool at the API server, "" while pools are not read there; `is_ours` tells the
    pools of this revision.

    `committed` is told of every commit; `changed` says that other pools may be ours now.
    """

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        path: Callable[[ObjectKey], str],
        is_ours: Callable[[Object[Any]], bool],
        backoff: Backoff,
        choose: random.Random,
    ) -> None:
        self._client, self._db, self._path, self._is_ours = client, db, path, is_ours
        self._upkeep: Upkeep[ObjectKey] = Upkeep("Service of InferencePool", self._settle, backoff, choose)
        self._watched: WatchedKeys[ShadowService | None] = WatchedKeys(
            db, pool_keys, shadow_service, self._upkeep.look_at
        )

    def committed(self, hit: Iterable[Node]) -> None:
        """Marks the pools whose Services may not be as they should."""
        self._watched.committed(hit)

    def changed(self) -> None:
        """Marks all pools."""
        self._watched.changed()

    async def run(self) -> None:
        """Keeps the Services as they should be until it is cancelled."""
        try:
            self._watched.start()
            await self._upkeep.run()
        finally:
            self._watched.stop()

    async def _settle(self, key: ObjectKey) -> None:
        path, row = self._path(key), INFERENCE_POOL.table(self._db).peek(key)
        if key not in self._watched or not path or row is None or not self._is_ours(row):
            return
        wanted = self._watched.value(key)
        if wanted is None or wanted.stands:
            return
        try:
            head = msgspec.json.decode(await self._client.call("GET", path), type=_Head)
        except NotFound:  # it has just gone
            return
        at = f"/api/v1/namespaces/{key.namespace}/services/{wanted.name}"
        body = msgspec.json.encode(build_service(key, wanted, head.metadata.uid, path.split("/")[3]))
        await self._client.call("PATCH", at, {"fieldManager": MANAGER, "force": "true"}, body, APPLY_PATCH)


def build_service(pool: ObjectKey, wanted: ShadowService, uid: str, version: str) -> dict[str, Any]:
    """Returns the Service of a pool, which has no address of its own."""
    protocol = {"appProtocol": wanted.app_protocol} if wanted.app_protocol else {}
    owner = {
        "apiVersion": f"{INFERENCE_POOL.id.group}/{version}",
        "kind": INFERENCE_POOL.id.name,
        "name": pool.name,
        "uid": uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": wanted.name,
            "namespace": pool.namespace,
            "labels": dict(wanted.labels),
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "type": "ClusterIP",
            "selector": dict(wanted.selector),
            "ports": [
                {"name": f"http-{n}", "protocol": "TCP", "port": FIRST_PORT + n, "targetPort": port, **protocol}
                for n, port in enumerate(wanted.ports)
            ],
        },
    }
