"""Incremental updates of the mesh graph while a dashboard is open."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

from pilot.config.kinds.istio import GATEWAY
from pilot.debug.dashboard.mesh import MeshGraph, links_of_route, route_keys, service_facts
from pilot.debug.slices import for_each
from pilot.derive import UNSET, Derived, Node
from pilot.mesh.registry.services import service_refs
from pilot.mesh.tables.database import Mesh

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _WatchedItems(Generic[K, T]):
    """The values of the derived function `each` for all keys that `listing` returns.

    The values are watched from the first `refresh` until `stop`.
    """

    def __init__(self, db: Mesh, listing: Derived[[], tuple[K, ...]], each: Derived[[K], T]) -> None:
        self._db, self._listing, self._each = db, listing, each
        self._listed: Node | None = None
        self._nodes: dict[K, Node] = {}
        self._revision = -1

    def values(self) -> list[T]:
        """Return the values as of the last refresh, in no particular order.

        Values whose computation failed are omitted.
        """
        return [node.value for node in self._nodes.values() if node.value is not UNSET]

    async def refresh(self) -> bool:
        """Update the values in slices, and return whether any value may have changed since the last refresh."""
        db, last_revision, now = self._db, self._revision, self._db.revision
        if self._listed is None:
            self._listed = db.watch(self._listing)
        db.refresh(self._listed)
        changed = self._listed.changed_at > last_revision
        if changed and self._listed.value is not UNSET:
            await self._list(self._listed.value)
        await for_each([node for node in self._nodes.values() if node.stale], db.refresh)
        self._revision = now
        return changed or any(node.changed_at > last_revision for node in self._nodes.values())

    def stop(self) -> None:
        """Stop watching."""
        for node in (*self._nodes.values(), *((self._listed,) if self._listed is not None else ())):
            self._db.unwatch(node)
        self._nodes, self._listed, self._revision = {}, None, -1

    async def _list(self, keys: tuple[K, ...]) -> None:
        for gone in self._nodes.keys() - set(keys):
            self._db.unwatch(self._nodes.pop(gone))
        await for_each([key for key in keys if key not in self._nodes], self._add)

    def _add(self, key: K) -> None:
        self._nodes[key] = self._db.watch(self._each, key)


class CachedGraph:
    """The mesh graph. Between `keep` and `release`, it is kept up to date.

    Otherwise, a `get` builds a new graph if anything has changed since the last one.
    """

    def __init__(self, db: Mesh) -> None:
        self._db = db
        self._services, self._links = (
            _WatchedItems(db, service_refs, service_facts),
            _WatchedItems(db, route_keys, links_of_route),
        )
        self._graph = MeshGraph([], (), [])
        self._revision = -1
        self._is_maintained = False
        self._refreshing = asyncio.Lock()
        self.number = 0
        """A number that changes whenever the graph changes."""

    def keep(self) -> None:
        """Keep the graph up to date, starting with the next `get`."""
        self._is_maintained = True

    def release(self) -> None:
        """Stop keeping the graph up to date. If a `get` is running, this takes effect when it has finished."""
        self._is_maintained = False
        if not self._refreshing.locked():
            self._stop()

    async def get(self) -> MeshGraph:
        """Return the current graph, which is updated in slices."""
        async with self._refreshing:
            try:
                if self._revision != self._db.revision:
                    await self._refresh()
                return self._graph
            finally:
                if not self._is_maintained:
                    self._stop()

    async def _refresh(self) -> None:
        revision = self._db.revision
        changed = [await items.refresh() for items in (self._services, self._links)]
        gateways = GATEWAY.all_keys(self._db)
        if any(changed) or gateways != self._graph.gateways:
            links = [link for route_links in self._links.values() for link in route_links]
            services = [facts for facts in self._services.values() if facts is not None]
            self._graph = MeshGraph(services, gateways, links)
            self.number += 1
        self._revision = revision

    def _stop(self) -> None:
        """Stop watching. The last graph is used again if nothing has changed until the next `get`."""
        self._services.stop()
        self._links.stop()
