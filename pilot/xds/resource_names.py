"""A set of resource names is held once, however many proxies ask for the same."""

from __future__ import annotations

import weakref


class Names:
    """An interned set of names: two subscriptions to the same names hold the identical object. Make one with `NameSets`."""

    __slots__ = ("__weakref__", "_changes", "all")

    def __init__(self, names: frozenset[str]) -> None:
        self.all = names
        self._changes: weakref.WeakValueDictionary[tuple[tuple[str, ...], tuple[str, ...]], Names] = (
            weakref.WeakValueDictionary()
        )


class NameSets:
    """Interns `Names`. Those that nobody holds any more are forgotten."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[frozenset[str], Names] = weakref.WeakValueDictionary()
        self.none = self.of(frozenset())

    def of(self, names: frozenset[str]) -> Names:
        found = self._known.get(names)
        if found is None:
            found = self._known[names] = Names(names)
        return found

    def change(self, old: Names, added: tuple[str, ...], removed: tuple[str, ...]) -> Names:
        """Returns `old` with names added, then others removed. Proxies of one kind make the same change: it is computed once."""
        key = (added, removed)
        found = old._changes.get(key)
        if found is None:
            found = old._changes[key] = self.of((old.all | frozenset(added)) - frozenset(removed))
        return found

    def __len__(self) -> int:
        return len(self._known)
