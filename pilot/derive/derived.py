"""Declarations of derived values: functions, hubs, gathers and lookups."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from pilot.derive.assembly import STEP, Assembly, Relisting
from pilot.derive.graph import UNSET, Database, Derivation, Gathered, Node, Paused, Steps
from pilot.derive.patched import patch

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
D = TypeVar("D", bound=Database)


class Derived(Derivation[P, T]):
    """A memoised pure function of the database. Its arguments are the cache key and must be hashable."""

    def __init__(self, compute: Callable[..., T], hub: bool) -> None:
        super().__init__(compute.__name__, compute, hub)
        self.__doc__, self.__module__ = compute.__doc__, compute.__module__


def derived(fn: Callable[Concatenate[D, P], T]) -> Derived[P, T]:
    """Declare `fn(db, *args)` as derived. Its value is shared by all readers and must not be modified."""
    return Derived(fn, hub=False)


def derived_in_steps(fn: Callable[Concatenate[D, P], Steps[T]]) -> Derived[P, T]:
    """Declare a generator function as derived. Its value is the one that it returns, and it can be interrupted wherever
    it yields.

    If it is interrupted while it reads another derived value, it starts again. It should therefore read what it needs
    before its first long loop. A loop that reads a value in each iteration yields `other.step(*args)` before it reads
    `other(db, *args)`. The value is then refreshed between two steps::

        for key in keys:
            yield other.step(key)
            result.append(other(db, key))
    """
    declared: Derived[P, T] = Derived(cast(Callable[..., T], fn), hub=False)
    declared.has_steps = True
    return declared


def updated(fn: Callable[Concatenate[D, T | None, P], T]) -> Derived[P, T]:
    """Declare `fn(db, previous, *args)` as derived. `previous` is its last good value, or None if there is none.

    The result must not depend on `previous`, which only saves work: a value with many parts is not built again for each
    change of one part.
    """

    def compute(db: Database, *args: Any) -> T:
        node = db.find_node(declared, *args)
        previous = node.value if node is not None and node.value is not UNSET else None
        return fn(cast(D, db), previous, *args)  # type: ignore[call-arg]

    declared: Derived[P, T] = Derived(functools.wraps(fn)(compute), hub=False)
    return declared


def run_steps(steps: Generator[Any, None, T]) -> T:
    """Run all steps without interruption, and return their value."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def hub(fn: Callable[Concatenate[D, P], T]) -> Derived[P, T]:
    """Declare a derived value that has many inputs and many readers, such as the list of all public services.

    A commit refreshes hubs immediately. If the value of a hub is unchanged, its readers are not affected. Explanations
    stop at hubs.
    """
    return Derived(fn, hub=True)


def hub_in_steps(fn: Callable[Concatenate[D, P], Steps[T]]) -> Derived[P, T]:
    """Declare a generator function as a hub. It can be interrupted wherever it yields, as in `derived_in_steps`."""
    declared: Derived[P, T] = Derived(cast(Callable[..., T], fn), hub=True)
    declared.has_steps = True
    return declared


class Gather(Derivation[P, Mapping[K, T]], Generic[K, P, T]):
    """A derived mapping from keys to items. A commit reruns only the items that it affects.

    `keys(db, *args)` returns a tuple of distinct keys in the order of the mapping. `item(db, key, *args)` returns the
    item for a key, or None to omit the key. Each change creates a new mapping. A reader may therefore keep an old
    mapping and compare its items by identity. If an item fails, it keeps its last good value or, if it has none, is
    omitted. The other items are not affected.

    `passed(key, *args)` converts the arguments of the gather to the arguments that an item takes after its key. By
    default, items take all of them. Gathers share an item if they have its key in common and pass the same arguments.
    """

    gathers = True

    def __init__(
        self,
        name: str,
        keys: Derived[Any, tuple[K, ...]],
        item: Derived[Any, T | None],
        hub: bool = False,
        passed: Callable[..., tuple[Hashable, ...]] | None = None,
    ) -> None:
        super().__init__(name, self._collect, hub)
        self.keys, self.item, self._pass_on = keys, item, passed

    def passed(self, key: Hashable, *args: Hashable) -> tuple[Hashable, ...]:
        """Return the arguments that an item takes after its key. `args` are the arguments of the gather."""
        return args if self._pass_on is None else self._pass_on(key, *args)

    def _collect(self, db: Database, node: Node) -> Mapping[K, T]:
        """Return the mapping after refreshing the items of new keys and the items that the last commits affected."""
        gathered = node.gathered
        assert gathered is not None
        first = gathered.keys is None
        if first:
            gathered.keys = self._node(db, self.keys, node.args, node)
        keys = gathered.keys
        assert keys is not None
        if keys.stale:
            db.refresh(keys)
        if keys.error is not None:
            raise keys.error
        relisted = first or keys.changed_at > node.verified_at or node.error is not None
        if relisted and gathered.listed is not keys.value:
            gathered.assembly = None
            if gathered.relisting is None or gathered.relisting.listed is not keys.value:
                gathered.relisting = Relisting(keys.value, self._relist(db, node, keys.value))
            _run_slice(db, gathered.relisting.steps)
            gathered.relisting = None
        self._refresh_items(db, node)
        items, old = gathered.items, node.value
        if old is not UNSET and not relisted and gathered.assembly is None:
            dirty, gathered.refreshed = gathered.refreshed, {}
            changed: dict[Any, Any] = {}
            for item in dirty:
                if item is keys:
                    continue
                key = item.args[0]
                if items.get(key) is item and (item.changed_at > node.verified_at or key not in old):
                    changed[key] = item.value
            if all((previous := old.get(k)) is v or previous == v for k, v in changed.items()):
                return old  # type: ignore[no-any-return]
            if all(k in old and v is not None and v is not UNSET for k, v in changed.items()):
                gathered.since, gathered.changed = node.changed_at, tuple(changed)
                return patch(old, changed)
        value = self._assemble(db, gathered, old)
        gathered.assembly, gathered.refreshed = None, {}
        if value is not old:
            gathered.changed = None
        return value

    @staticmethod
    def _assemble(db: Database, gathered: Gathered, old: Any) -> Mapping[K, T]:
        """Return the values of all items, which are `old` if they are equal. Raise Paused if that must be interrupted.

        Items that change during a pause are updated at the end.
        """
        while True:
            if gathered.assembly is None:
                gathered.refreshed = {}
                gathered.assembly = Assembly(gathered.items, old)
            assembly = gathered.assembly
            _run_slice(db, assembly.steps)
            if assembly.update(gathered.refreshed):
                return assembly.old if assembly.is_equal else assembly.value
            gathered.assembly = None

    def _refresh_items(self, db: Database, node: Node) -> None:
        """Refresh the dirty items. Raise Paused if that must be interrupted."""
        gathered, must_pause = node.gathered, db.must_pause
        assert gathered is not None
        dirty, gathered.dirty = gathered.dirty, {}
        if gathered.refreshed:
            gathered.refreshed |= dirty
        else:
            gathered.refreshed = dirty
        for index, item in enumerate(dirty):
            if item.stale and item is not gathered.keys and gathered.items.get(item.args[0]) is item:
                try:
                    db.refresh(item)
                except Paused:
                    gathered.dirty = dict.fromkeys(itertools.islice(dirty, index, None))
                    raise
                if must_pause is not None and must_pause():
                    gathered.dirty = dict.fromkeys(itertools.islice(dirty, index + 1, None))
                    raise Paused

    def _relist(self, db: Database, node: Node, listed: tuple[Hashable, ...]) -> Generator[None, None, None]:
        """Replace the list of keys in steps. The nodes of new keys become dirty.

        They are items from the start. Their order is that of the list at the end.
        """
        gathered = node.gathered
        assert gathered is not None
        items, args = gathered.items, node.args
        ordered: dict[Hashable, Node] = {}
        for number, key in enumerate(listed, 1):
            item = items.get(key)
            if item is None:
                item = items[key] = self._node(db, self.item, (key, *self.passed(key, *args)), node)
                gathered.dirty[item] = None
            ordered[key] = item
            if number % STEP == 0:
                yield
        for number, key in enumerate(tuple(items) if len(items) > len(ordered) else (), 1):
            if key not in ordered:
                db.unread(items.pop(key), node)
            if number % STEP == 0:
                yield
        gathered.items, gathered.listed = ordered, listed

    @staticmethod
    def _node(db: Database, fn: Derived[Any, Any], args: tuple[Any, ...], reader: Node) -> Node:
        node = db.find_or_adopt(fn, args)
        node.read_by(reader)
        return node


def _run_slice(db: Database, steps: Generator[None, None, None]) -> None:
    """Run the remaining steps. Raise Paused if that must be interrupted."""
    for _ in steps:
        if db.must_pause is not None and db.must_pause():
            raise Paused


class Lookup(Gather[K, P, T]):
    """A gather whose first argument is the frozenset of its keys: `lookup(db, keys, *args)`.

    After their key, items take only the other arguments. Lookups with overlapping keys therefore share items, and a new
    set of keys requires computation only for its new keys.
    """

    def __init__(self, name: str, item: Derived[Any, T | None]) -> None:
        super().__init__(name, _listed, item, passed=lambda key, keys, *args: args)


@derived
def _listed(db: Database, keys: frozenset[Any], *_: Hashable) -> tuple[Any, ...]:
    return tuple(sorted(keys))
