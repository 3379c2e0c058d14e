"""Registers workloads in this process when there is no API server. Their WorkloadEntries are rows of the database.

Other replicas do not have these entries. An entry in a file takes precedence over a registered one with the same name.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.config.object import ObjectKey, RegistryKey
from pilot.controllers.registered_entry import build_entry, claimed_entry, find_entry, find_group
from pilot.ingest.decode import DocumentOrigin, Row, decode_document
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.lib.logging.log import scope
from pilot.lib.metrics.kubernetes_metrics import KubernetesMetrics
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.model.ambient_features import listens_for_hbone
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.workload_registration import RegistrationError

_API_VERSION = "networking.istio.io/v1"
_log = scope("wle")


class EntrySink(Protocol):
    """Accepts edits. `Batch` implements it."""

    def put(self, edits: Iterable[Edit]) -> None: ...


class InMemoryRegistrationOptions(NamedTuple):
    """Options of registration.

    grace: Seconds that an entry is kept after its proxy has disconnected.
    identity_check: Whether a proxy must authenticate as the entry's namespace and service account.
    """

    grace: float = 10.0
    identity_check: bool = True


class InMemoryRegistration:
    """A `WorkloadRegistration` whose entries exist only in this process."""

    def __init__(
        self,
        db: Mesh,
        batch: EntrySink,
        ledger: SourceLedger,
        origin: DocumentOrigin,
        options: InMemoryRegistrationOptions,
        metrics: KubernetesMetrics,
    ) -> None:
        self._db, self._batch, self._ledger, self._origin = db, batch, ledger, origin
        self._options, self._metrics = options, metrics
        self._entries: dict[ObjectKey, dict[str, Any]] = {}
        self._streams: collections.Counter[ObjectKey] = collections.Counter()
        self._expiring: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._changed: asyncio.Queue[ObjectKey] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None

    async def register(self, proxy: Proxy) -> None:
        """Register the proxy's workload if the proxy requests registration. Raise RegistrationError if that is not
        possible."""
        key = claimed_entry(proxy)
        if key is None:
            return
        try:
            if proxy.text("AUTO_REGISTER_GROUP"):
                self._register(key, proxy)
            else:
                find_entry(self._db, proxy, key, self._options.identity_check)
        except RegistrationError:
            self._metrics.registered("errors")
            raise
        self._streams[key] += 1

    def unregister(self, proxy: Proxy) -> None:
        """Record the end of a stream. The grace period of an entry starts after its last stream has ended."""
        key = claimed_entry(proxy)
        if key is None or not self._streams[key]:
            return
        self._streams[key] -= 1
        if not self._streams[key]:
            del self._streams[key]
            if key in self._entries:
                self._metrics.registered("unregister")
                self._expiring[key] = asyncio.get_running_loop().call_later(self._options.grace, self._remove, key)

    def report_health(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Store the health of a registered workload. The status of an entry that a user has created does not change."""
        key = claimed_entry(proxy)
        if key is None or key not in self._entries:
            return
        condition = {"type": "Healthy", "status": str(healthy), **({"message": message} if message else {})}
        self._put(key, {**self._entries[key], "status": {"conditions": [condition]}})

    async def start(self) -> None:
        """Start writing entries into the tables."""
        self._writing = asyncio.create_task(self._write_entries(), name="workload entries in memory")

    async def stop(self) -> None:
        """Stop writing and removing entries."""
        for timer in self._expiring.values():
            timer.cancel()
        await cancel_tasks(self._writing)

    async def _write_entries(self) -> None:
        """Pass changed entries to the ledger one at a time, because file readers may hold its lock for a while."""
        while True:
            key = await self._changed.get()
            entry = self._entries.get(key)
            row: Row = WORKLOAD_ENTRY.table_name, RegistryKey(self._origin.cluster, *key)
            async with self._ledger.turn:
                decoded = decode_document(entry, origin=self._origin) if entry is not None else None
                self._batch.put(self._ledger.put(row, decoded) if decoded is not None else self._ledger.drop(row))

    def _register(self, key: ObjectKey, proxy: Proxy) -> None:
        group = find_group(self._db, proxy, self._options.identity_check)
        if (timer := self._expiring.pop(key, None)) is not None:
            timer.cancel()
        self._metrics.registered("updates" if key in self._entries else "success")
        status = {"status": self._entries[key]["status"]} if "status" in self._entries.get(key, {}) else {}
        entry = build_entry(group, proxy, "", _API_VERSION, listens_for_hbone(self._db.settings.ambient))
        self._put(key, {**entry, **status})

    def _put(self, key: ObjectKey, entry: dict[str, Any]) -> None:
        self._entries[key] = entry
        self._changed.put_nowait(key)

    def _remove(self, key: ObjectKey) -> None:
        """Remove an entry after its grace period."""
        del self._expiring[key], self._entries[key]
        self._metrics.registered("deletes")
        _log.info("unregistered WorkloadEntry %s/%s", *key)
        self._changed.put_nowait(key)
