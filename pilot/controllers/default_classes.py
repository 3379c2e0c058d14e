"""The GatewayClasses that exist without any object become objects, so that users see them; one that is there is never changed."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from pilot.config.group_kind import GATEWAY_API
from pilot.config.kinds.gateway_api import GATEWAY_CLASS
from pilot.config.object import ObjectKey
from pilot.controllers.reconciler import Upkeep
from pilot.kube.client import ApiClient
from pilot.kube.errors import Conflict
from pilot.lib.backoff import Backoff
from pilot.mesh.gateway_api.classes import known_classes
from pilot.mesh.tables.database import Mesh


class DefaultClasses:
    """Makes them while it runs; `changed` says that one may be missing. `path` returns the path of a class, "" while the kind is not there."""

    def __init__(
        self, client: ApiClient, db: Mesh, path: Callable[[str], str], backoff: Backoff, choose: random.Random
    ) -> None:
        self._client, self._db, self._path = client, db, path
        self._upkeep: Upkeep[str] = Upkeep("class of gateways", self._settle, backoff, choose)

    def changed(self) -> None:
        """Looks at all of them: one was taken away, or the kind is there now."""
        self._upkeep.look_at(known_classes(self._db))

    async def run(self) -> None:
        """Keeps them there until it is cancelled."""
        self.changed()
        await self._upkeep.run()

    async def _settle(self, name: str) -> None:
        path, info = self._path(name), known_classes(self._db).get(name)
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
