"""All objects of one kind: those that users wrote, and those that follow from other kinds."""
from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from pilot.derive import Table
from pilot.model.config.object import Object, ObjectKey
from pilot.model.inputs import Mesh

S = TypeVar("S")


class Source(Protocol[S]):
    """Objects that follow from other kinds; all reads are tracked, and the indexes are those of the kind's table."""

    def get(self, db: Mesh, key: ObjectKey) -> Object[S] | None: ...
    def keys(self, db: Mesh, index: str, bucket: Hashable) -> tuple[ObjectKey, ...]: ...
    def all_keys(self, db: Mesh) -> tuple[ObjectKey, ...]: ...


class KindView(Generic[S]):
    """The objects of a kind, read like its table. Of two objects of one key the one that a user wrote counts, then the first source's."""

    def __init__(self, table: Callable[[Mesh], Table[ObjectKey, Object[S]]], *sources: Source[S]) -> None:
        self._table, self.sources = table, sources

    def get(self, db: Mesh, key: ObjectKey) -> Object[S] | None:
        """The object, or None; an absent object is a read too."""
        row = self._table(db).get(key)
        if row is not None or not self.sources:
            return row
        return next((o for source in self.sources if (o := source.get(db, key)) is not None), None)

    def keys(self, db: Mesh, index: str, bucket: Hashable) -> tuple[ObjectKey, ...]:
        """Keys of the objects in a bucket of an index, sorted."""
        written = self._table(db).keys(index, bucket)
        return self._join(db, written, [source.keys(db, index, bucket) for source in self.sources])

    def all_keys(self, db: Mesh) -> tuple[ObjectKey, ...]:
        """Every key, sorted."""
        return self._join(db, self._table(db).all_keys(), [source.all_keys(db) for source in self.sources])

    def _join(self, db: Mesh, written: tuple[ObjectKey, ...], derived: list[tuple[ObjectKey, ...]]) -> tuple[ObjectKey, ...]:
        """The keys of all; a derived object that another of its key hides does not count, whatever its buckets are."""
        if not any(derived):
            return written
        table, found = self._table(db), set(written)
        for position, keys in enumerate(derived):
            before = self.sources[:position]
            found.update(key for key in keys if table.get(key) is None and all(s.get(db, key) is None for s in before))
        return tuple(sorted(found))
