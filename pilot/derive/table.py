"""Input tables. They map keys to rows and have named indexes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from typing import Any, Generic, ParamSpec, TypeVar

from pilot.derive.derived import Derived
from pilot.derive.graph import Database, Node
from pilot.derive.small_sets import SmallSet, with_item, without_item

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
P = ParamSpec("P")
Index = Callable[[Any, Any], Iterable[Hashable]]
_NO_BUCKETS: Set[Hashable] = frozenset()
_FEW = 32
"""Number of added and removed keys from which it is faster to sort all keys."""


class _Input(Derived[P, R]):
    """A tracked read of a table."""

    is_input = True


class Table(Generic[K, R]):
    """A mapping from keys to rows, which only `Database.commit` changes.

    `get`, `keys`, `buckets` and `all_keys` are tracked reads. An index is a function that returns the buckets of a key
    and row. Rows are immutable, and replacing a row with an equal row is not a change.
    """

    def __init__(self, db: Database, name: str, **indexes: Index) -> None:
        self._db, self.name, self._indexes = db, name, indexes
        self._rows: dict[K, R] = {}
        self._sorted: list[Any] = []  # the keys at the last read of all
        self._moved: set[K] = set()  # keys that were added or removed since, unless there are more than `_FEW`
        self._buckets: dict[str, dict[Hashable, SmallSet[K]]] = {index: {} for index in indexes}
        self._row: Derived[Any, R | None] = _Input(self._read_row, hub=False)
        self._bucket: Derived[Any, tuple[K, ...]] = _Input(self._read_bucket, hub=True)
        self._held: Derived[Any, tuple[Any, ...]] = _Input(self._read_buckets, hub=True)
        self._every: Derived[Any, tuple[K, ...]] = _Input(self._read_all, hub=True)
        self._bucket_readers: tuple[Derived[Any, Any], ...] = (self._bucket,)
        self._row.__name__, self._bucket.__name__, self._held.__name__, self._every.__name__ = (
            name,
            f"{name} by",
            f"{name} by every",
            f"every {name}",
        )
        db.tables[name] = self

    def get(self, key: K) -> R | None:
        """Return the row with a key, or None if there is none. The read of an absent row is tracked too."""
        return self._row(self._db, key)

    def keys(self, index: str, bucket: Hashable) -> tuple[K, ...]:
        """Return the sorted keys of the rows in a bucket of an index."""
        return self._bucket(self._db, index, bucket)

    def keys_for(self, reader: Derived[Any, Any], index: str, bucket: Hashable) -> tuple[K, ...]:
        """Return what `keys` returns, to a reader with the same arguments.

        Changes mark the reader's node directly, which saves a node for each bucket.
        """
        if reader not in self._bucket_readers:
            self._bucket_readers += (reader,)
        return self._read_bucket(self._db, index, bucket)

    def buckets(self, index: str) -> tuple[Any, ...]:
        """Return the sorted, non-empty buckets of an index."""
        return self._held(self._db, index)

    def all_keys(self) -> tuple[K, ...]:
        """Return all keys, sorted."""
        return self._every(self._db)

    def peek(self, key: K) -> R | None:
        """Return the row with a key, or None. The read is not tracked, so derivations must not call this."""
        return self._rows.get(key)

    def peek_keys(self, index: str, bucket: Hashable) -> frozenset[K]:
        """Return the keys of the rows in a bucket of an index. The read is not tracked, so derivations must not call
        this."""
        return frozenset(self._buckets[index].get(bucket, ()))

    def rows(self) -> Iterator[tuple[K, R]]:
        """Yield each key with its row. The read is not tracked, so derivations must not call this."""
        return iter(self._rows.items())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def row_reader(self) -> Derived[Any, R | None]:
        """The derivation that implements `get`."""
        return self._row

    @property
    def indexes(self) -> Mapping[str, Index]:
        """The index functions, keyed by name. Each returns the buckets of a key and row."""
        return self._indexes

    def apply(self, key: K, row: R | None, todo: list[Node]) -> None:
        """Set a row, or delete it if `row` is None. Only `Database.commit` may call this."""
        old = self._rows.get(key)
        if old is row or old == row:
            return
        if row is None:
            del self._rows[key]
        else:
            self._rows[key] = row
        self._db.touch(self._row, (key,), todo)
        if old is None or row is None:
            if len(self._moved) <= _FEW:
                self._moved.add(key)
            self._db.touch(self._every, (), todo)
        readers = [reader for reader in self._bucket_readers if self._db.has_nodes(reader)]
        for name, extract in self._indexes.items():
            before = set(extract(key, old)) if old is not None else _NO_BUCKETS
            after = set(listed) if row is not None and (listed := extract(key, row)) else _NO_BUCKETS
            if before == after:
                continue
            buckets = self._buckets[name]
            for bucket in before - after if after else before:
                if remaining := without_item(buckets[bucket], key):
                    buckets[bucket] = remaining
                else:
                    del buckets[bucket]
                    self._db.touch(self._held, (name,), todo)
                for reader in readers:
                    self._db.touch(reader, (name, bucket), todo)
            for bucket in after - before if before else after:
                if bucket not in buckets:
                    self._db.touch(self._held, (name,), todo)
                buckets[bucket] = with_item(buckets.get(bucket, ()), key)
                for reader in readers:
                    self._db.touch(reader, (name, bucket), todo)

    def _read_row(self, db: Database, key: K) -> R | None:
        return self._rows.get(key)

    def _read_bucket(self, db: Database, index: str, bucket: Hashable) -> tuple[K, ...]:
        return tuple(sorted(self._buckets[index].get(bucket, ())))  # type: ignore[type-var]

    def _read_buckets(self, db: Database, index: str) -> tuple[Hashable, ...]:
        return tuple(sorted(self._buckets[index]))  # type: ignore[type-var]

    def _read_all(self, db: Database) -> tuple[K, ...]:
        keys, moved = self._sorted, self._moved
        self._moved = set()
        if len(moved) > _FEW:
            keys = self._sorted = sorted(self._rows)
        for key in moved if len(moved) <= _FEW else ():
            position = bisect_left(keys, key)
            is_listed = position < len(keys) and keys[position] == key
            if is_listed and key not in self._rows:
                del keys[position]
            elif key in self._rows and not is_listed:
                keys.insert(position, key)
        return tuple(keys)
