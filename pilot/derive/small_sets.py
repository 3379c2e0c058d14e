"""Sets that take little memory: tuples while they have few items, and dicts or buckets of tuples afterwards.

Most nodes have one reader, and most buckets of an index have one key. A tuple of one item takes about a quarter of the
memory of a set. Settings and lists are read by a node of each cluster, and buckets of so many readers take half of the
memory of a dict. The keys of an index are compared slowly, so that a dict of them is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
FEW = 32
"""Maximum number of items of a tuple."""
_PER_BUCKET = 8
"""Average number of items of a bucket at which a set gets more buckets."""


class ManyItems(Generic[T]):
    """A set of many items, which takes about 20 bytes for each. Its order is not defined."""

    __slots__ = ("_buckets", "_count")

    def __init__(self, items: Iterable[T]) -> None:
        self._buckets: list[tuple[T, ...]] = [()] * 3
        self._count = 0
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for bucket in self._buckets:
            yield from bucket

    def __contains__(self, item: object) -> bool:
        return item in self._buckets[hash(item) % len(self._buckets)]

    def add(self, item: T) -> None:
        """Add an item, if it is not present."""
        buckets = self._buckets
        index = hash(item) % len(buckets)
        if item in (bucket := buckets[index]):
            return
        buckets[index] = (*bucket, item)
        self._count += 1
        if self._count > _PER_BUCKET * len(buckets):
            self._grow()

    def discard(self, item: T) -> None:
        """Remove an item, if it is present."""
        buckets = self._buckets
        index = hash(item) % len(buckets)
        if item in (bucket := buckets[index]):
            buckets[index] = _without(bucket, item)
            self._count -= 1

    def _grow(self) -> None:
        """Double the buckets. Their number stays odd, because hashes of objects are multiples of a power of two."""
        number = 2 * len(self._buckets) + 1
        buckets: list[list[T]] = [[] for _ in range(number)]
        for item in self:
            buckets[hash(item) % number].append(item)
        self._buckets = [*map(tuple, buckets)]


SmallSet = tuple[T, ...] | dict[T, None] | ManyItems[T]


def with_item(
    items: SmallSet[T], item: T, create: Callable[[Iterable[T]], dict[T, None] | ManyItems[T]] = dict.fromkeys
) -> SmallSet[T]:
    """Return the set with an item. A large set is modified in place, and `create` returns a new one."""
    if isinstance(items, tuple):
        if item in items:
            return items
        return (*items, item) if len(items) < FEW else create((*items, item))
    if isinstance(items, dict):
        items[item] = None
    else:
        items.add(item)
    return items


def without_item(items: SmallSet[T], item: T) -> SmallSet[T]:
    """Return the set without an item. A large set is modified in place."""
    if isinstance(items, tuple):
        return _without(items, item) if item in items else items
    if isinstance(items, dict):
        items.pop(item, None)
    else:
        items.discard(item)
    return items or ()


def _without(items: tuple[T, ...], item: T) -> tuple[T, ...]:
    place = items.index(item)
    return items[:place] + items[place + 1 :]
