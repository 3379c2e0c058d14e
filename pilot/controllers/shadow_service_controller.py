"""Creates a headless Service for each InferencePool that a Gateway routes to. The Service selects the pool's pods.

The Service is owned by the pool. An existing Service with the same name is not changed if it does not belong to a pool.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pilot.config.kinds.gateway_api import INFERENCE_POOL
from pilot.config.object import Object, ObjectKey
from pilot.controllers.deployed_objects import APPLY_PATCH
from pilot.controllers.reconciler import Reconciler
from pilot.controllers.watched_keys import WatchedKeys
from pilot.derive import Node
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import NotFound
from pilot.lib.backoff import Backoff
from pilot.mesh.lowering.gateway_api.inference_pools import FIRST_PORT
from pilot.mesh.lowering.gateway_api.shadow_services import ShadowService, pool_keys, shadow_service
from pilot.mesh.tables.database import Mesh

FIELD_MANAGER = "istio.io/inference-pool-controller"


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class ShadowServiceController:
    """Writes the Services of InferencePools.

    `path_of` returns the API path of a pool, or "" if the kind is not available. `is_ours` returns whether a pool
    belongs to this revision.
    """

    def __init__(
        self,
        client: ApiClient,
        db: Mesh,
        path_of: Callable[[ObjectKey], str],
        is_ours: Callable[[Object[Any]], bool],
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._client, self._db, self._path_of, self._is_ours = client, db, path_of, is_ours
        self._reconciler: Reconciler[ObjectKey] = Reconciler("Service of InferencePool", self._reconcile, backoff, rng)
        self._watched: WatchedKeys[ShadowService | None] = WatchedKeys(
            db, pool_keys, shadow_service, self._reconciler.enqueue
        )

    def on_commit(self, nodes: Iterable[Node]) -> None:
        """Enqueue the pools that a commit affects."""
        self._watched.on_commit(nodes)

    def resync(self) -> None:
        """Enqueue all pools."""
        self._watched.resync()

    async def run(self) -> None:
        """Write Services until cancelled."""
        try:
            self._watched.start()
            await self._reconciler.run()
        finally:
            self._watched.stop()

    async def _reconcile(self, key: ObjectKey) -> None:
        path, row = self._path_of(key), INFERENCE_POOL.table(self._db).peek(key)
        if key not in self._watched or not path or row is None or not self._is_ours(row):
            return
        service = self._watched.value(key)
        if service is None or service.is_current:
            return
        try:
            head = msgspec.json.decode(await self._client.call("GET", path), type=_Head)
        except NotFound:  # deleted meanwhile
            return
        service_path = f"/api/v1/namespaces/{key.namespace}/services/{service.name}"
        body = msgspec.json.encode(build_service(key, service, head.metadata.uid, path.split("/")[3]))
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        await self._client.call("PATCH", service_path, query, body, APPLY_PATCH)


def build_service(pool: ObjectKey, service: ShadowService, uid: str, version: str) -> dict[str, Any]:
    """Return the headless Service of a pool."""
    protocol = {"appProtocol": service.app_protocol} if service.app_protocol else {}
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
            "name": service.name,
            "namespace": pool.namespace,
            "labels": dict(service.labels),
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "type": "ClusterIP",
            "selector": dict(service.selector),
            "ports": [
                {"name": f"http-{n}", "protocol": "TCP", "port": FIRST_PORT + n, "targetPort": port, **protocol}
                for n, port in enumerate(service.ports)
            ],
        },
    }
