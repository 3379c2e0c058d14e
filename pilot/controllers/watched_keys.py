"""Watches a derived list of keys, and a derived value for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pilot.config.object import ObjectKey
from pilot.derive import UNSET, Node
from pilot.derive.derived import Derived
from pilot.mesh.tables.database import Mesh

T = TypeVar("T")


class WatchedKeys(Generic[T]):
    """Watches between `start` and `stop`. It calls `enqueue` with new keys and with the keys of changed values."""

    def __init__(
        self,
        db: Mesh,
        all_keys: Derived[[], tuple[ObjectKey, ...]],
        value: Derived[[ObjectKey], T],
        enqueue: Callable[[Iterable[ObjectKey]], None],
    ) -> None:
        self._db, self._all_keys, self._value, self._enqueue = db, all_keys, value, enqueue
        self._nodes: dict[ObjectKey, Node] = {}
        self._keys: dict[Node, ObjectKey] = {}
        self._list_node: Node | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._nodes

    def start(self) -> None:
        """Start watching, and enqueue all keys as new."""
        self._list_node = self._db.watch(self._all_keys)
        self._update_keys(self._list_node)

    def stop(self) -> None:
        """Stop watching, and forget all keys."""
        for node in (*self._keys, *([self._list_node] if self._list_node is not None else [])):
            self._db.unwatch(node)
        self._nodes, self._keys, self._list_node = {}, {}, None

    def on_commit(self, nodes: Iterable[Node]) -> None:
        """Handle the nodes that a commit affects."""
        for node in nodes:
            if node is self._list_node:
                self._update_keys(node)
            elif node in self._keys:
                self._enqueue((self._keys[node],))

    def resync(self) -> None:
        """Enqueue all keys."""
        self._enqueue(list(self._nodes))

    def value(self, key: ObjectKey) -> T | None:
        """Return the current value of a watched key, or None if it cannot be derived."""
        node = self._nodes[key]
        self._db.refresh(node)
        return None if node.value is UNSET else node.value

    def _update_keys(self, node: Node) -> None:
        self._db.refresh(node)
        keys: set[ObjectKey] = set() if node.value is UNSET else set(node.value)
        for key in self._nodes.keys() - keys:
            removed = self._nodes.pop(key)
            del self._keys[removed]
            self._db.unwatch(removed)
        for key in sorted(keys - self._nodes.keys()):
            added = self._nodes[key] = self._db.watch(self._value, key)
            self._keys[added] = key
            self._enqueue((key,))
