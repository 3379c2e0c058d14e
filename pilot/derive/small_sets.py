"""Sets that are tuples while they have few items.

Most nodes have one reader, and most buckets of an index have one key. A tuple of one item takes about a quarter of the
memory of a set. More items are the keys of a dict, which keeps their order and reserves less memory than a set when it
grows.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
SmallSet = tuple[T, ...] | dict[T, None]
FEW = 32
"""Maximum number of items of a tuple."""


def with_item(items: SmallSet[T], item: T) -> SmallSet[T]:
    """Return the set with an item. A dict is modified in place."""
    if isinstance(items, dict):
        items[item] = None
        return items
    if item in items:
        return items
    if len(items) < FEW:
        return (*items, item)
    return dict.fromkeys((*items, item))


def without_item(items: SmallSet[T], item: T) -> SmallSet[T]:
    """Return the set without an item. A dict is modified in place."""
    if isinstance(items, dict):
        items.pop(item, None)
        return items
    return tuple(other for other in items if other != item) if item in items else items
