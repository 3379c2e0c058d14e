"""The addresses that are allocated to hosts of ServiceEntries, written into their status, so that they stay whoever comes and goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.object import Object, ObjectKey
from pilot.controllers.reconciler import Upkeep
from pilot.derive import UNSET
from pilot.kube.client import ApiClient
from pilot.kube.errors import NotFound
from pilot.lib.backoff import Backoff
from pilot.mesh.registry.auto_addresses import allocated_addresses
from pilot.mesh.tables.database import Mesh

MERGE_PATCH = "application/merge-patch+json"
Address = tuple[str, str]
"""A host, and an address of it."""


class AutoAddresses:
    """Writes them while it runs. `path` returns the path of an entry at the API server, "" while there is none. `changed` says that they may be
    others now."""

    def __init__(
        self, client: ApiClient, db: Mesh, path: Callable[[ObjectKey], str], backoff: Backoff, choose: random.Random
    ) -> None:
        self._client, self._db, self._path = client, db, path
        self._upkeep: Upkeep[ObjectKey] = Upkeep("addresses of", self._settle, backoff, choose)
        self._node = db.watch(allocated_addresses)
        self._grouped: tuple[Any, dict[ObjectKey, list[Address]]] = UNSET, {}

    def changed(self) -> None:
        """Looks at the entries whose addresses are not what their status says."""
        self._db.refresh(self._node)
        self._upkeep.look_at(
            key for key, row in SERVICE_ENTRY.table(self._db).rows() if _held(row) != self._wanted(key, row)
        )

    async def run(self) -> None:
        """Keeps them as they should be until it is cancelled."""
        self.changed()
        await self._upkeep.run()

    def _wanted(self, key: ObjectKey, row: Object[ServiceEntry]) -> tuple[Address, ...]:
        """Returns the addresses of an entry, in the order of its hosts."""
        held = self._by_entry().get(key, ())
        return tuple((host, address) for host in row.spec.hosts for h, address in held if h == host) if held else ()

    def _by_entry(self) -> dict[ObjectKey, list[Address]]:
        """Returns the hosts and addresses of each entry, put together once for all that are written while they stay what they are."""
        of, found = self._grouped
        allocated = self._node.value
        if of is not allocated:
            found = {}
            for (key, host), addresses in ({} if allocated is UNSET else allocated).items():
                found.setdefault(key, []).extend((host, address) for address in addresses)
            self._grouped = allocated, found
        return found

    async def _settle(self, key: ObjectKey) -> None:
        """Writes the addresses of one entry, where its status has others."""
        row: Object[ServiceEntry] | None = SERVICE_ENTRY.table(self._db).peek(key)
        self._db.refresh(self._node)
        path = self._path(key)
        if row is None or not path:
            return
        wanted = self._wanted(key, row)
        if _held(row) == wanted:
            return
        addresses: list[dict[str, Any]] | None = [{"value": address, "host": host} for host, address in wanted] or None
        patch = msgspec.json.encode({"status": {"addresses": addresses}})
        try:
            await self._client.call("PATCH", f"{path}/status", body=patch, content_type=MERGE_PATCH)
        except NotFound:  # it has just gone
            return


def _held(row: Object[ServiceEntry]) -> tuple[Address, ...]:
    status = row.spec.status
    return tuple((a.host.lower(), a.value) for a in status.addresses) if status is not None else ()
