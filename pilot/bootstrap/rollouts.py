"""The last change of each object, by which users ask whether their change has reached the proxies."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from pilot.config.object import Object
from pilot.config.problem import ObjectRef
from pilot.debug.sources import CommittedObject
from pilot.ingest.batch import ENDPOINTS, Batch, Commit
from pilot.ingest.decode import UNVERSIONED
from pilot.ingest.fingerprint import fingerprint
from pilot.ingest.ledger import Ledger
from pilot.mesh.tables.database import Mesh

KEPT = 20_000
"""Maximum number of objects whose last change is known."""


class Rollouts:
    """The last change of each object of a cluster. `on_change` records changes."""

    def __init__(self, db: Mesh, ledger: Ledger, batch: Batch, cluster: str) -> None:
        self._db, self._ledger, self._batch, self._cluster = db, ledger, batch, cluster
        self._events: OrderedDict[tuple[str, Hashable], int] = OrderedDict()
        self._forgotten = 0

    def on_change(self, event: int, commit: Commit) -> None:
        """Record the objects that a commit changes."""
        events = self._events
        for table, key, _ in commit.edits:
            if table not in ENDPOINTS:
                events.pop((table, key), None)
                events[table, key] = event
        while len(events) > KEPT:
            _, self._forgotten = events.popitem(last=False)

    def find(self, ref: ObjectRef) -> CommittedObject | None:
        """Return the object of a kind that users write, or None if there is no such kind."""
        kind = self._db.catalogue.find(ref.kind)
        if kind is None or kind.table_name in ENDPOINTS:
            return None
        key = kind.key(self._cluster, ref.namespace, ref.name)
        row = kind.table_name, key
        current, committed = self._ledger.find(row), self._db.tables[kind.table_name].peek(key)
        is_current = self._batch.is_committed(*row) and (current[0] if current is not None else None) == committed
        version = current[1] if is_current and current is not None else UNVERSIONED
        return CommittedObject(
            exists=current is not None,
            is_current=is_current,
            is_ignored=current is not None and committed is None and self._batch.is_committed(*row),
            generation=version.generation,
            uid=version.uid,
            manager=version.manager,
            event=self._events.get(row, 0),
            is_forgotten=row not in self._events and self._forgotten > 0,
            fingerprint=fingerprint(committed) if isinstance(committed, Object) else "",
        )
