"""What writers of objects by key watch: the list of the keys, and a derivation of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pilot.config.object import ObjectKey
from pilot.derive import UNSET, Node
from pilot.derive.derived import Derived
from pilot.mesh.tables.database import Mesh

T = TypeVar("T")


class WatchedKeys(Generic[T]):
    """Watches between `start` and `stop`. `look_at` is told of keys that are new, and of those whose value may be another one."""

    def __init__(
        self,
        db: Mesh,
        listing: Derived[[], tuple[ObjectKey, ...]],
        each: Derived[[ObjectKey], T],
        look_at: Callable[[Iterable[ObjectKey]], None],
    ) -> None:
        self._db, self._listing, self._each, self._look_at = db, listing, each, look_at
        self._nodes: dict[ObjectKey, Node] = {}
        self._keys: dict[Node, ObjectKey] = {}
        self._listed: Node | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._nodes

    def start(self) -> None:
        """Begins to watch; all keys are new then."""
        self._listed = self._db.watch(self._listing)
        self._list(self._listed)

    def stop(self) -> None:
        """Watches nothing any more."""
        for node in (*self._keys, *([self._listed] if self._listed is not None else [])):
            self._db.unwatch(node)
        self._nodes, self._keys, self._listed = {}, {}, None

    def committed(self, hit: Iterable[Node]) -> None:
        """Takes the nodes that a commit reached."""
        for node in hit:
            if node is self._listed:
                self._list(node)
            elif node in self._keys:
                self._look_at((self._keys[node],))

    def changed(self) -> None:
        """Has every key looked at."""
        self._look_at(list(self._nodes))

    def value(self, key: ObjectKey) -> T | None:
        """Returns the value of a watched key as it is now; None where there is none."""
        node = self._nodes[key]
        self._db.refresh(node)
        return None if node.value is UNSET else node.value

    def _list(self, node: Node) -> None:
        self._db.refresh(node)
        listed: set[ObjectKey] = set() if node.value is UNSET else set(node.value)
        for key in self._nodes.keys() - listed:
            gone = self._nodes.pop(key)
            del self._keys[gone]
            self._db.unwatch(gone)
        for key in sorted(listed - self._nodes.keys()):
            new = self._nodes[key] = self._db.watch(self._each, key)
            self._keys[new] = key
            self._look_at((key,))
