"""The addresses that are allocated to hosts of ServiceEntries, written into their status, so that they stay whoever comes and goes."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from pilot.derive import UNSET
from pilot.kube.backoff import Backoff
from pilot.kube.client import Client
from pilot.kube.errors import NotFound
from pilot.model.config.object import Object, ObjectKey
from pilot.model.config.service_entry import ServiceEntry
from pilot.model.inputs import Mesh
from pilot.model.views.auto_addresses import allocated_addresses
from pilot.writers.upkeep import Upkeep

MERGE_PATCH = "application/merge-patch+json"
Address = tuple[str, str]
"""A host, and an address of it."""


class AutoAddresses:
    """Writes them while it runs. `path` returns the path of an entry at the API server, "" while there is none. `changed` says that they may be
    others now."""

    def __init__(self, client: Client, db: Mesh, path: Callable[[ObjectKey], str], backoff: Backoff, choose: random.Random) -> None:
        self._client, self._db, self._path = client, db, path
        self._upkeep: Upkeep[ObjectKey] = Upkeep("addresses of", self._settle, backoff, choose)
        self._node = db.watch(allocated_addresses)

    def changed(self) -> None:
        """Looks at the entries whose addresses are not what their status says."""
        self._db.refresh(self._node)
        wanted = self._wanted()
        rows = self._db.service_entries.rows()
        self._upkeep.look_at(key for key, row in rows if _held(row) != wanted.get(key, ()))

    async def run(self) -> None:
        """Keeps them as they should be until it is cancelled."""
        self.changed()
        await self._upkeep.run()

    def _wanted(self) -> dict[ObjectKey, tuple[Address, ...]]:
        """Returns the addresses of each entry, in the order of its hosts."""
        allocated = {} if self._node.value is UNSET else self._node.value
        found: dict[ObjectKey, list[Address]] = {}
        for (key, host), addresses in allocated.items():
            found.setdefault(key, []).extend((host, address) for address in addresses)
        hosts = {key: row.spec.hosts for key in found if (row := self._db.service_entries.peek(key)) is not None}
        return {key: tuple((host, address) for host in hosts[key] for h, address in held if h == host) for key, held in found.items() if key in hosts}

    async def _settle(self, key: ObjectKey) -> None:
        """Writes the addresses of one entry, where its status has others."""
        row: Object[ServiceEntry] | None = self._db.service_entries.peek(key)
        self._db.refresh(self._node)
        wanted, path = self._wanted().get(key, ()), self._path(key)
        if row is None or not path or _held(row) == wanted:
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
