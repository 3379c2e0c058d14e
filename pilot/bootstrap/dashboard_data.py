"""Data that is recorded for the dashboard: changes, their delivery, measurements of the last hour, and origins."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

from pilot.config.catalogue import Catalogue
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.debug.changes import LISTED, ChangedObject, ChangeLog
from pilot.debug.field_changes import MAX_FIELDS, field_changes
from pilot.debug.history import History
from pilot.ingest.batch import ENDPOINTS, Commit
from pilot.ingest.ledger import Ledger
from pilot.ingest.namespace_filter import Edit
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import MESH_CONFIG
from pilot.xds.push.discovery import Discovery

Action = Literal["add", "update", "delete", "change"]


class DashboardData:
    """The recorded data. `on_change` and `sample` add to it."""

    def __init__(self, catalogue: Catalogue, ledger: Ledger, discovery: Discovery, metrics: Metrics) -> None:
        self._catalogue, self._ledger, self._discovery, self._metrics = catalogue, ledger, discovery, metrics
        self.changes = ChangeLog(discovery.progress.find)
        self.history = History()

    def on_change(self, event: int, commit: Commit, proxies: int) -> None:
        """Record a commit, and the number of proxies that it affects."""
        tables = Counter(table for table, _, _ in commit.edits)
        endpoints = sum(tables[table] for table in ENDPOINTS)
        written = {table for table in tables if table not in ENDPOINTS and self._is_written(table)}
        edits = [edit for of in (written, ENDPOINTS) for edit in _first(commit, of)]
        objects = list(itertools.islice(self._changed_objects(commit, edits), LISTED))
        total = sum(tables[table] for table in written)
        if total or endpoints:
            self.changes.record(event, objects, total, endpoints, proxies, commit.runs)
        else:
            self.changes.others.derivations += commit.runs

    def _changed_objects(self, commit: Commit, edits: Iterable[Edit]) -> Iterator[ChangedObject]:
        """Yield the objects of a commit, with the fields that differ, of which a change has at most `MAX_FIELDS`."""
        rest = MAX_FIELDS
        for table, key, row in edits:
            fields = field_changes(commit.former.get((table, key)), row)[:rest] if rest else ()
            rest -= len(fields)
            yield self._changed(table, key, row, _action(commit, table, row is None))._replace(fields=fields)

    def _is_written(self, table: str) -> bool:
        """Return whether users write the rows of a table. The control plane adds the rows of the other tables."""
        return table == MESH_CONFIG or self._catalogue.find_by_table(table) is not None

    def _changed(self, table: str, key: object, row: object, action: Action) -> ChangedObject:
        kind = self._catalogue.find_by_table(table)
        if kind is None or not isinstance(key, ObjectKey | RegistryKey):
            return ChangedObject(action, "", table, "", str(key))
        source = self._ledger.document_of((table, key))
        version = self._ledger.version_of((table, key), row)
        return ChangedObject(
            action,
            kind.id.group,
            kind.id.name,
            key.namespace,
            key.name,
            str(source) if source is not None else "",
            version.generation,
            version.manager,
        )

    def document_of(self, ref: ObjectRef, cluster: str) -> str:
        """Return the file that provides an object, or the name of its other source. Return "" if there is none."""
        kind = self._catalogue.find(ref.kind)
        if kind is None:
            return ""
        document = self._ledger.document_of((kind.table_name, kind.key(cluster, ref.namespace, ref.name)))
        return str(document) if document is not None else ""

    def sample(self) -> Iterator[None]:
        """Add a point to the history, in steps."""
        return self.history.sample(self._discovery.connections(), self._metrics, self.changes.number)


def _first(commit: Commit, tables: Collection[str]) -> Iterator[Edit]:
    """Return the first edits of some tables."""
    return itertools.islice((edit for edit in commit.edits if edit[0] in tables), LISTED)


def _action(commit: Commit, table: str, is_deleted: bool) -> Action:
    """Return the action on a row. A commit counts the actions on each table, so mixed actions are not told apart."""
    if is_deleted:
        return "delete"
    added, updated = commit.events.get((table, "add")), commit.events.get((table, "update"))
    return "change" if added and updated else "add" if added else "update"
