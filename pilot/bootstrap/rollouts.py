"""The last change of each object, by which users ask whether their change has reached the proxies."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from pilot.config.object import Object
from pilot.config.problem import ObjectRef
from pilot.controllers.delivery_status import DeliveryCount
from pilot.debug.object_delivery import find_delivery
from pilot.debug.sources import CommittedObject, Sources
from pilot.ingest.batch import ENDPOINTS, Batch, Commit
from pilot.ingest.decode import UNVERSIONED
from pilot.ingest.fingerprint import fingerprint
from pilot.ingest.ledger import Ledger
from pilot.mesh.tables.database import Mesh

KEPT = 20_000
"""Maximum number of objects whose last change is known."""
KEPT_DELETED = 1000
"""Maximum number of deleted objects whose last change is known."""


class _LastChange(NamedTuple):
    """The number of a change of an object. If `is_new` is true, it has added the object."""

    event: int
    is_new: bool


class _LastChanges:
    """The last change of at most `KEPT` objects, and of at most `KEPT_DELETED` deleted ones. `has_forgotten` is true if
    it is unknown for others."""

    def __init__(self) -> None:
        self._existing: OrderedDict[tuple[str, Hashable], _LastChange] = OrderedDict()
        self._deleted: OrderedDict[tuple[str, Hashable], _LastChange] = OrderedDict()
        self.has_forgotten = False

    def add(self, row: tuple[str, Hashable], change: _LastChange, is_deleted: bool) -> None:
        """Set the last change of an object."""
        self._existing.pop(row, None)
        self._deleted.pop(row, None)
        changes, limit = (self._deleted, KEPT_DELETED) if is_deleted else (self._existing, KEPT)
        changes[row] = change
        if len(changes) > limit:
            changes.popitem(last=False)
            self.has_forgotten = True

    def find(self, row: tuple[str, Hashable]) -> _LastChange | None:
        """Return the last change of an object, or None if it is unknown."""
        return self._existing.get(row) or self._deleted.get(row)


class Rollouts:
    """The last change of each object of a cluster. `on_change` records changes."""

    def __init__(self, db: Mesh, ledger: Ledger, batch: Batch, cluster: str) -> None:
        self._db, self._ledger, self._batch, self._cluster = db, ledger, batch, cluster
        self._changes, self._endpoint_changes = _LastChanges(), _LastChanges()

    def on_change(self, event: int, commit: Commit) -> None:
        """Record the objects that a commit changes."""
        added, changed = _LastChange(event, True), _LastChange(event, False)  # which thousands of objects may share
        for table, key, row in commit.edits:
            is_new = row is not None and not commit.events.get((table, "update"))
            self._changes_in(table).add((table, key), added if is_new else changed, row is None)

    def _changes_in(self, table: str) -> _LastChanges:
        return self._endpoint_changes if table in ENDPOINTS else self._changes

    def find(self, ref: ObjectRef) -> CommittedObject | None:
        """Return the object of a kind that users write, or None if there is no such kind."""
        kind = self._db.catalogue.find(ref.kind)
        if kind is None:
            return None
        key = kind.key(self._cluster, ref.namespace, ref.name)
        row = kind.table_name, key
        current, committed = self._ledger.find(row), self._db.tables[kind.table_name].peek(key)
        is_current = self._batch.is_committed(*row) and (current[0] if current is not None else None) == committed
        version = current[1] if is_current and current is not None else UNVERSIONED
        changes = self._changes_in(kind.table_name)
        change = changes.find(row)
        return CommittedObject(
            exists=current is not None,
            is_current=is_current,
            is_ignored=current is not None and committed is None and self._batch.is_committed(*row),
            generation=version.generation,
            uid=version.uid,
            manager=version.manager,
            event=change.event if change is not None else 0,
            is_new=change is not None and change.is_new,
            is_forgotten=change is None and changes.has_forgotten,
            fingerprint=fingerprint(committed) if isinstance(committed, Object) else "",
        )


async def count_delivery(sources: Sources, ref: ObjectRef) -> DeliveryCount | None:
    """Return how many connected proxies have the last change of an object of an API server, or None if another change
    follows or the object has no effect."""
    version = sources.find_object(ref)
    if version is None or not version.exists or version.is_ignored or not version.generation:
        return None
    delivery = await find_delivery(sources, ref, version, sources.fleet.connections())
    if version != sources.find_object(ref):  # it has changed between two slices
        return None
    affected = delivery.acknowledged + len(delivery.lacking)
    return DeliveryCount(version.generation, affected, delivery.acknowledged, delivery.count("refused"))
