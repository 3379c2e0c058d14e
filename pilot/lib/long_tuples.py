"""Operations on long tuples of which few items change. They compare items by identity, without a Python loop."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Sequence
from itertools import compress, count, repeat
from operator import is_, is_not
from typing import Any, Generic, NamedTuple, TypeVar

S = TypeVar("S")
T = TypeVar("T")
_FEW = 32
"""Number of replaced items from which it is faster to sort all items."""


def replace_items(items: tuple[Any, ...], removed: Collection[Any], added: Collection[Any]) -> tuple[Any, ...]:
    """Return sorted items without `removed` and with `added`. No two items are equal.

    An item that is in both stays.
    """
    removed_ids, added_ids = set(map(id, removed)), set(map(id, added))
    gone = [item for item in removed if id(item) not in added_ids]
    new = [item for item in added if id(item) not in removed_ids]
    if len(gone) + len(new) > _FEW:
        gone_ids = set(map(id, gone))
        return tuple(sorted([*(item for item in items if id(item) not in gone_ids), *new]))
    result = list(items)
    for item in gone:
        del result[bisect_left(result, item)]
    for item in new:
        insort(result, item)
    return tuple(result)


def differing_span(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[slice, slice]:
    """Return the items of two tuples between their common first items and their common last items."""
    shorter = min(len(before), len(after))
    first = next(compress(count(), map(is_not, before, after)), shorter)
    last = next(compress(count(), map(is_not, reversed(before), reversed(after))), shorter)
    last = min(last, shorter - first)
    return slice(first, len(before) - last), slice(first, len(after) - last)


class Mapped(NamedTuple, Generic[S, T]):
    """Items, and the result for each of them."""

    items: tuple[S, ...] = ()
    results: tuple[T, ...] = ()


def map_items(compute: Callable[[S], T], items: tuple[S, ...], before: Mapped[S, T]) -> Mapped[S, T]:
    """Return the result for each item. `before` has results that are used again."""
    old, new = differing_span(before.items, items)
    results = before.results
    return Mapped(items, (*results[: old.start], *map(compute, items[new]), *results[old.stop :]))


def changed_items(before: tuple[T, ...], after: tuple[T, ...]) -> tuple[list[T], list[T]]:
    """Return the items that are only in the first of two tuples, and those that are only in the second."""
    old, new = differing_span(before, after)
    gone, added = dict.fromkeys(before[old]), dict.fromkeys(after[new])
    return [item for item in gone if item not in added], [item for item in added if item not in gone]


def missing(items: Sequence[object]) -> list[int]:
    """Return the positions of the items that are None."""
    return [*compress(count(), map(is_, items, repeat(None)))]
