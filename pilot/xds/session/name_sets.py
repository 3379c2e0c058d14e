"""Interned sets of resource names. A set is stored once, regardless of the number of proxies that request it.

The names are interned too, because the sets of different proxies have most names in common, and resources have them.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterable


def read_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names in a request as a set of interned strings."""
    return frozenset(map(sys.intern, names))


class Names:
    """An interned set of names, created by `NameSets`.

    Subscriptions to the same names share one object.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self.all = names
        self._changes: weakref.WeakValueDictionary[tuple[frozenset[str], frozenset[str]], Names] = (
            weakref.WeakValueDictionary()
        )

    @functools.cached_property
    def size(self) -> int:
        """Return the size of the names in memory, in bytes."""
        return sum(map(sys.getsizeof, self.all))


class NameSets:
    """Interns `Names`. Unused sets are dropped."""

    def __init__(self) -> None:
        self._sets: weakref.WeakValueDictionary[frozenset[str], Names] = weakref.WeakValueDictionary()
        self.none = self.of(frozenset())

    def of(self, names: frozenset[str]) -> Names:
        interned = self._sets.get(names)
        if interned is None:
            interned = self._sets[names] = Names(names)
        return interned

    def change(self, old: Names, added: frozenset[str], removed: frozenset[str]) -> Names:
        """Return `old` with the names in `added` added and then the names in `removed` removed.

        The result is computed once for all proxies that make the same change.
        """
        key = (added, removed)
        changed = old._changes.get(key)
        if changed is None:
            names = old.all | added if old.all else added
            changed = old._changes[key] = self.of(names if removed.isdisjoint(names) else names - removed)
        return changed

    def __len__(self) -> int:
        return len(self._sets)
