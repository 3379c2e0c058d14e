"""Writes the addresses allocated to the hosts of a ServiceEntry into its status, so that they are stable."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.object import Object, ObjectKey
from pilot.controllers.reconciler import Reconciler
from pilot.derive import UNSET
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import NotFound
from pilot.lib.backoff import Backoff
from pilot.mesh.registry.auto_addresses import NO_HOSTS, allocated_addresses
from pilot.mesh.tables.database import Mesh

MERGE_PATCH = "application/merge-patch+json"
HostAddress = tuple[str, str]
"""A host and one of its addresses."""


class AutoAddressController:
    """Writes allocated addresses.

    `path_of` returns the API path of a ServiceEntry, or "" if the kind is not available.
    """

    def __init__(
        self, client: ApiClient, db: Mesh, path_of: Callable[[ObjectKey], str], backoff: Backoff, rng: random.Random
    ) -> None:
        self._client, self._db, self._path_of = client, db, path_of
        self._reconciler: Reconciler[ObjectKey] = Reconciler("addresses of", self._reconcile, backoff, rng)
        self._node = db.watch(allocated_addresses)

    def resync(self) -> None:
        """Enqueue the ServiceEntries whose status contains other addresses."""
        self._db.refresh(self._node)
        self._reconciler.enqueue(
            key
            for key, row in SERVICE_ENTRY.table(self._db).rows()
            if _status_addresses(row) != self._desired_addresses(key, row)
        )

    async def run(self) -> None:
        """Write addresses until cancelled."""
        self.resync()
        await self._reconciler.run()

    def _desired_addresses(self, key: ObjectKey, row: Object[ServiceEntry]) -> tuple[HostAddress, ...]:
        """Return the addresses of a ServiceEntry, in the order of its hosts."""
        allocated = NO_HOSTS if self._node.value is UNSET else self._node.value.get(key, NO_HOSTS)
        return tuple((host, address) for host in row.spec.hosts for address in allocated.get(host, ()))

    async def _reconcile(self, key: ObjectKey) -> None:
        """Write the addresses of one ServiceEntry if its status differs."""
        row: Object[ServiceEntry] | None = SERVICE_ENTRY.table(self._db).peek(key)
        self._db.refresh(self._node)
        path = self._path_of(key)
        if row is None or not path:
            return
        desired = self._desired_addresses(key, row)
        if _status_addresses(row) == desired:
            return
        addresses: list[dict[str, Any]] | None = [{"value": address, "host": host} for host, address in desired] or None
        patch = msgspec.json.encode({"status": {"addresses": addresses}})
        try:
            await self._client.call("PATCH", f"{path}/status", body=patch, content_type=MERGE_PATCH)
        except NotFound:  # deleted meanwhile
            return


def _status_addresses(row: Object[ServiceEntry]) -> tuple[HostAddress, ...]:
    status = row.spec.status
    return tuple((a.host.lower(), a.value) for a in status.addresses) if status is not None else ()
