"""Registers the workloads whose proxies ask for it where there is no API server to write to: their entries are rows of this process.

Another replica does not know them. What files declare under the same name comes before.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.config.object import ObjectKey, RegistryKey
from pilot.controllers.claims import claimed_entry, find_entry, find_group
from pilot.controllers.registered_entry import build_entry
from pilot.ingest.decode import DocumentOrigin, Row, decode_document
from pilot.ingest.ledger import SourceLedger
from pilot.ingest.namespace_filter import Edit
from pilot.lib.kubernetes_metrics import KubernetesMetrics
from pilot.lib.log import scope
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.xds.lifecycle import RegistrationError

_API_VERSION = "networking.istio.io/v1"
_log = scope("wle")


class EntrySink(Protocol):
    """Takes edits: a `Batch`."""

    def put(self, edits: Iterable[Edit]) -> None: ...


class MemoryTerms(NamedTuple):
    """`grace`: seconds that the entry of a proxy that is gone stays. `identity_check`: a proxy must have proved to be of the entry's namespace and
    service account."""

    grace: float = 10.0
    identity_check: bool = True


class EntriesInMemory:
    """A `Lifecycle`. `counts` has how many workloads came and went."""

    def __init__(
        self,
        db: Mesh,
        batch: EntrySink,
        ledger: SourceLedger,
        origin: DocumentOrigin,
        terms: MemoryTerms,
        counts: KubernetesMetrics,
    ) -> None:
        self._db, self._batch, self._ledger, self._origin, self._terms, self._counts = (
            db,
            batch,
            ledger,
            origin,
            terms,
            counts,
        )
        self._entries: dict[ObjectKey, dict[str, Any]] = {}
        self._streams: collections.Counter[ObjectKey] = collections.Counter()
        self._leaving: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._changed: asyncio.Queue[ObjectKey] = asyncio.Queue()
        self._putting: asyncio.Task[None] | None = None

    async def connected(self, proxy: Proxy) -> None:
        """Returns when the proxy's workload is registered, if it asks for that. RegistrationError where it cannot be."""
        key = claimed_entry(proxy)
        if key is None:
            return
        try:
            if proxy.text("AUTO_REGISTER_GROUP"):
                self._register(key, proxy)
            else:
                find_entry(self._db, proxy, key, self._terms.identity_check)
        except RegistrationError:
            self._counts.registered("errors")
            raise
        self._streams[key] += 1

    def closed(self, proxy: Proxy) -> None:
        """Notes the end of a stream; with the last one of an entry its time begins to end."""
        key = claimed_entry(proxy)
        if key is None or not self._streams[key]:
            return
        self._streams[key] -= 1
        if not self._streams[key]:
            del self._streams[key]
            if key in self._entries:
                self._counts.registered("unregister")
                self._leaving[key] = asyncio.get_running_loop().call_later(self._terms.grace, self._remove, key)

    def reported(self, proxy: Proxy, healthy: bool, message: str) -> None:
        """Notes how a workload is, by the health checks of its proxy; that of an entry that a user has written is the user's."""
        key = claimed_entry(proxy)
        if key is None or key not in self._entries:
            return
        condition = {"type": "Healthy", "status": str(healthy), **({"message": message} if message else {})}
        self._put(key, {**self._entries[key], "status": {"conditions": [condition]}})

    async def start(self) -> None:
        """Begins to put entries into the tables."""
        self._putting = asyncio.create_task(self._keep_putting(), name="workload entries in memory")

    async def stop(self) -> None:
        """Takes nothing away any more."""
        for timer in self._leaving.values():
            timer.cancel()
        await cancel_tasks(self._putting)

    async def _keep_putting(self) -> None:
        """Hands entries to the ledger, one after the other: what reads files may have it for a while."""
        while True:
            key = await self._changed.get()
            entry = self._entries.get(key)
            row: Row = WORKLOAD_ENTRY.table_name, RegistryKey(self._origin.cluster, *key)
            async with self._ledger.turn:
                decoded = decode_document(entry, origin=self._origin) if entry is not None else None
                self._batch.put(self._ledger.put(row, decoded) if decoded is not None else self._ledger.drop(row))

    def _register(self, key: ObjectKey, proxy: Proxy) -> None:
        group = find_group(self._db, proxy, self._terms.identity_check)
        if (timer := self._leaving.pop(key, None)) is not None:
            timer.cancel()
        self._counts.registered("updates" if key in self._entries else "success")
        status = {"status": self._entries[key]["status"]} if "status" in self._entries.get(key, {}) else {}
        self._put(key, {**build_entry(group, proxy, "", _API_VERSION), **status})

    def _put(self, key: ObjectKey, entry: dict[str, Any]) -> None:
        self._entries[key] = entry
        self._changed.put_nowait(key)

    def _remove(self, key: ObjectKey) -> None:
        """Takes away an entry whose proxy has been gone for the grace."""
        del self._leaving[key], self._entries[key]
        self._counts.registered("deletes")
        _log.info("%s/%s is not registered any more", *key)
        self._changed.put_nowait(key)
