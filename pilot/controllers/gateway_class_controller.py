"""Creates the built-in GatewayClasses, so that users can see them. Existing classes are never changed."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from pilot.config.group_kind import GATEWAY_API
from pilot.config.kinds.gateway_api import GATEWAY_CLASS
from pilot.config.object import ObjectKey
from pilot.controllers.reconciler import Reconciler
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import Conflict
from pilot.lib.backoff import Backoff
from pilot.mesh.gateway_api.gateway_classes import built_in_classes
from pilot.mesh.tables.database import Mesh


class GatewayClassController:
    """Creates missing GatewayClasses.

    `path_of` returns the API path of a class, or "" if the kind is not available.
    """

    def __init__(
        self, client: ApiClient, db: Mesh, path_of: Callable[[str], str], backoff: Backoff, rng: random.Random
    ) -> None:
        self._client, self._db, self._path_of = client, db, path_of
        self._reconciler: Reconciler[str] = Reconciler("GatewayClass", self._reconcile, backoff, rng)

    def resync(self) -> None:
        """Enqueue all classes, because one was deleted or the kind became available."""
        self._reconciler.enqueue(built_in_classes(self._db))

    async def run(self) -> None:
        """Create missing classes until cancelled."""
        self.resync()
        await self._reconciler.run()

    async def _reconcile(self, name: str) -> None:
        path, info = self._path_of(name), built_in_classes(self._db).get(name)
        if not path or info is None or GATEWAY_CLASS.table(self._db).peek(ObjectKey("", name)) is not None:
            return
        plain = {
            "apiVersion": f"{GATEWAY_API}/{path.split('/')[3]}",
            "kind": GATEWAY_CLASS.id.name,
            "metadata": {"name": name},
            "spec": {"controllerName": info.controller, "description": info.description},
        }
        try:
            await self._client.call("POST", path.rpartition("/")[0], body=msgspec.json.encode(plain))
        except Conflict:  # another revision was faster
            return
