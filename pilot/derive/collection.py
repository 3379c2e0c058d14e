"""Collections, which merge the rows of a table with rows that derived functions compute."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pilot.derive.assembly import STEP
from pilot.derive.derived import Derived
from pilot.derive.graph import UNSET, Database, Derivation, Node, Steps
from pilot.derive.patched import Patched, patch
from pilot.derive.table import Table

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
Bucket = tuple[str, Hashable]
Source = Callable[[Any], Mapping[K, R]]


class SourceRows(NamedTuple):
    """The rows of a source, and the revision in which the rows last changed."""

    rows: Mapping[Any, Any]
    revision: int


class Rows:
    """The derived rows of a collection.

    `every` has the sorted keys of all rows. `buckets` has the sorted keys for each index and bucket. `inputs` has the
    rows of each source. `changed` and `moved` are the keys and buckets that differ from those of `before`. Instances
    are compared by identity.
    """

    __slots__ = ("__weakref__", "_before", "buckets", "by_key", "changed", "every", "inputs", "moved")

    def __init__(
        self,
        by_key: dict[Any, Any] | Patched[Any, Any],
        every: tuple[Any, ...],
        buckets: Mapping[Bucket, tuple[Any, ...]],
        inputs: tuple[SourceRows, ...],
        before: Rows | None = None,
        changed: tuple[Any, ...] = (),
        moved: tuple[Bucket, ...] = (),
    ) -> None:
        self.by_key, self.every, self.buckets, self.inputs = by_key, every, buckets, inputs
        self.changed, self.moved = changed, moved
        self._before = weakref.ref(before) if before is not None else None

    def follows(self, other: Rows) -> bool:
        """Return whether these rows are the direct successor of `other`."""
        return self._before is not None and self._before() is other


NO_ROWS = Rows({}, (), {}, ())


class DerivedSource(NamedTuple):
    """A source of derived rows. Its value maps keys to rows.

    It is either a gather or a derived function whose only argument is the database. `enabled` tells whether a database
    has rows from this source. It must always return the same result for the same database.
    """

    rows: Source[Any, Any]
    enabled: Callable[[Any], bool] | None = None


class Collection(Generic[K, R]):
    """The rows of a table merged with rows that are derived from other tables. They share the table's indexes.

    `table_name` is the table's name in `Database.tables`. Sources are derived functions of the database whose value
    maps keys to rows::

        virtual_services = Collection("VirtualService", "networking.istio.io/VirtualService")
        virtual_services.add_source(virtual_services_of_http_routes)
        virtual_services.get(db, key)
        virtual_services.keys(db, "host", host)
        virtual_services.all_keys(db)

    Reads are tracked like those of a table. If a commit changes one derived row, the readers of that row rerun, and so
    do the readers of the buckets that it entered or left. If several rows have the same key, the table's row wins.
    Otherwise the first source's row wins. A collection without enabled sources reads the table directly and adds no
    nodes. The explanation of a derived row includes the rows from which it was derived.
    """

    def __init__(self, name: str, table_name: str) -> None:
        self.name, self.table_name = name, table_name
        self.sources: tuple[DerivedSource, ...] = ()
        self._is_derived: bool | None = False  # None if that depends on the database
        self._rows: Derived[Any, Rows] = _DerivedRows(self)
        self._row: Derived[Any, R | None] = Derived(self._read_row, hub=False)
        self._bucket: Derived[Any, tuple[K, ...]] = Derived(self._read_bucket, hub=True)
        self._held: Derived[Any, tuple[Any, ...]] = Derived(self._read_held, hub=True)
        self._every: Derived[Any, tuple[K, ...]] = Derived(self._read_all, hub=True)
        self._rows.__name__, self._row.__name__ = f"derived {name}s", f"derived {name}"
        self._bucket.__name__, self._held.__name__ = f"{name} of all sources by", f"{name} of all sources by every"
        self._every.__name__ = f"every {name} of all sources"
        self._row.picks_from = self._rows

    def add_source(self, rows: Source[K, R], enabled: Callable[[Any], bool] | None = None) -> None:
        """Add a source of derived rows. Call this only while modules are imported, before any database exists."""
        self.replace_sources(*self.sources, DerivedSource(rows, enabled))

    def replace_sources(self, *sources: DerivedSource) -> None:
        """Replace all sources. Tests call this before they create a database."""
        self.sources = sources
        self._is_derived = any(source.enabled is None for source in sources) or (None if sources else False)

    def table(self, db: Database) -> Table[K, R]:
        """Return the table without the derived rows. Derivations must not call this."""
        table: Table[K, R] = db.tables[self.table_name]
        return table

    def get(self, db: Database, key: K) -> R | None:
        """Return the row with a key, or None if there is none. The read of an absent row is tracked too."""
        row: R | None = db.tables[self.table_name].get(key)
        if row is None and self._is_derived is not False and (self._is_derived or self._has_enabled_source(db)):
            return self._row(db, key)
        return row

    def keys(self, db: Database, index: str, bucket: Hashable) -> tuple[K, ...]:
        """Return the sorted keys of the rows in a bucket of an index."""
        if self._is_derived is not False and (self._is_derived or self._has_enabled_source(db)):
            return self._bucket(db, index, bucket)
        keys: tuple[K, ...] = db.tables[self.table_name].keys(index, bucket)
        return keys

    def buckets(self, db: Database, index: str) -> tuple[Any, ...]:
        """Return the sorted, non-empty buckets of an index."""
        return self._held(db, index) if self._has_enabled_source(db) else self.table(db).buckets(index)

    def all_keys(self, db: Database) -> tuple[K, ...]:
        """Return all keys, sorted."""
        if self._is_derived is not False and (self._is_derived or self._has_enabled_source(db)):
            return self._every(db)
        return self.table(db).all_keys()

    def derived_rows(self, db: Database) -> Iterator[Node]:
        """Yield the node of each derived row that something reads."""
        return (node for node in tuple(db.nodes_of(self._row)) if node.value is not None and node.value is not UNSET)

    def _has_enabled_source(self, db: Database) -> bool:
        return any(source.enabled is None or source.enabled(db) for source in self.sources)

    def _read_row(self, db: Database, key: K) -> R | None:
        return self._rows(db).by_key.get(key)

    def _read_bucket(self, db: Database, index: str, bucket: Hashable) -> tuple[K, ...]:
        own = self.table(db).keys_for(self._bucket, index, bucket)
        return self._join(db, own, self._rows(db).buckets.get((index, bucket), ()))

    def _read_held(self, db: Database, index: str) -> tuple[Any, ...]:
        derived = {
            bucket for name, bucket in self._rows(db).buckets if name == index and self._bucket(db, index, bucket)
        }
        return tuple(sorted(derived.union(self.table(db).buckets(index))))

    def _read_all(self, db: Database) -> tuple[K, ...]:
        return self._join(db, self.table(db).all_keys(), self._rows(db).every)

    def _join(self, db: Database, own: tuple[K, ...], derived: tuple[K, ...]) -> tuple[K, ...]:
        """Merge the keys of the table with the keys of the derived rows. The key of a derived row is omitted if a row
        of the table hides the derived row."""
        table = self.table(db)
        seen = tuple(key for key in derived if table.get(key) is None)
        return tuple(sorted((*own, *seen))) if seen else own  # type: ignore[type-var]

    def derive_rows(self, db: Database) -> Steps[Rows]:
        """Derive the indexed rows of all sources in steps. Unchanged parts are shared with the previous value."""
        node = db.find_node(self._rows)
        old: Rows = node.value if node is not None and node.value is not UNSET else NO_ROWS
        inputs = tuple(_read(db, source) for source in self.sources)
        before = old.inputs or (_NOTHING,) * len(inputs)
        suspects = {
            key
            for source, last, now in zip(self.sources, before, inputs, strict=True)
            for key in _suspects(db, source.rows, last, now)
        }
        yield None
        changed: dict[Any, Any] = {}
        for number, key in enumerate(suspects, 1):
            row = next((g.rows[key] for g in inputs if key in g.rows), None)
            if (previous := old.by_key.get(key)) is not row and previous != row:
                changed[key] = row
            if number % STEP == 0:
                yield None
        if not changed:
            return old
        if all(key in old.by_key and row is not None for key, row in changed.items()):
            by_key, every = patch(old.by_key, changed), old.every
        else:
            by_key = {key: row for key, row in {**dict(old.by_key.items()), **changed}.items() if row is not None}
            every = tuple(sorted(by_key))
        buckets, moved = yield from self._reindex(db, old, by_key, changed)
        return Rows(by_key, every, buckets, inputs, old, tuple(changed), moved)

    def _reindex(
        self, db: Database, old: Rows, by_key: Mapping[K, R], changed: Iterable[K]
    ) -> Steps[tuple[Mapping[Bucket, tuple[K, ...]], tuple[Bucket, ...]]]:
        """Return all buckets, and the buckets that changed."""
        moves: dict[Bucket, tuple[set[K], set[K]]] = {}
        for name, extract in self.table(db).indexes.items():
            for number, key in enumerate(changed, 1):
                if number % STEP == 0:
                    yield None
                before = set(extract(key, old.by_key[key])) if key in old.by_key else set()
                after = set(extract(key, by_key[key])) if key in by_key else set()
                for bucket in before ^ after:
                    moves.setdefault((name, bucket), (set(), set()))[bucket in after].add(key)
        if not moves:
            return old.buckets, ()
        buckets = {**old.buckets}
        for number, (at, (left, entered)) in enumerate(moves.items(), 1):
            if number % STEP == 0:
                yield None
            keys: tuple[K, ...] = tuple(sorted({*buckets.pop(at, ()), *entered} - left))
            if keys:
                buckets[at] = keys
        return buckets, tuple(moves)

    def touch_changed(self, db: Database, old: Rows, new: Rows) -> list[Node]:
        """Mark the nodes of changed rows, buckets, bucket lists and key lists as outdated, and return these nodes."""
        reached: list[Node] = []
        follows = new.follows(old)
        for key in new.changed if follows else _changed_keys(old.by_key, new.by_key):
            db.touch(self._row, (key,), reached)
        moved = new.moved if follows else _changed_keys(old.buckets, new.buckets)
        for at in moved:
            db.touch(self._bucket, at, reached)
        for index in {at[0] for at in moved if (at in old.buckets) != (at in new.buckets)}:
            db.touch(self._held, (index,), reached)
        if old.every is not new.every and old.every != new.every:
            db.touch(self._every, (), reached)
        return reached


class _DerivedRows(Derived[[], Rows]):
    """The derivation that computes the derived rows of a collection. A change affects only the readers of changed rows
    and buckets."""

    def __init__(self, collection: Collection[Any, Any]) -> None:
        super().__init__(cast(Callable[..., Rows], collection.derive_rows), hub=True)
        self.has_steps = True
        self._collection = collection

    def reached(self, db: Database, node: Node, before: Any) -> list[Node]:
        """Return the nodes of changed rows, buckets and lists. If the derivation fails or failed before, return its own
        node."""
        if before is UNSET or node.error is not None:
            return [node]
        return self._collection.touch_changed(db, before, node.value)


def _changed_keys(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> list[Any]:
    changed = [key for key, value in new.items() if (before := old.get(key)) is not value and before != value]
    return changed + [key for key in old if key not in new]


_NOTHING = SourceRows({}, -1)


def _read(db: Database, source: DerivedSource) -> SourceRows:
    """Return the current rows of a source. If the source is not enabled, there are no rows."""
    if source.enabled is not None and not source.enabled(db):
        return _NOTHING
    rows = source.rows(db)
    node = db.find_node(source.rows) if isinstance(source.rows, Derivation) else None
    return SourceRows(rows, node.changed_at if node is not None else -1)


def _suspects(db: Database, source: Source[Any, Any], last: SourceRows, now: SourceRows) -> Iterable[Any]:
    """Return the keys of a source's rows that may have changed.

    A gather reports these keys. For any other source, they are the keys whose rows differ.
    """
    if now.rows is last.rows:
        return ()
    node = db.find_node(source) if isinstance(source, Derivation) else None
    gathered = node.gathered if node is not None else None
    if gathered is not None and gathered.changed is not None and gathered.since == last.revision:
        return gathered.changed
    return _changed_keys(last.rows, now.rows)
