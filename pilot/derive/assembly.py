"""The steps in which a gather replaces its list of keys, and copies the values of its items."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from pilot.derive.graph import UNSET, Node

STEP = 256
"""Number of keys or items in a step."""


class Relisting(NamedTuple):
    """The steps that replace the keys of a gather with those of a list."""

    listed: tuple[Hashable, ...]
    steps: Generator[None, None, None]


class Assembly:
    """The values of a gather's items, copied in `steps`. `is_equal` is whether they are those of `old` in the same
    order."""

    def __init__(self, items: Mapping[Hashable, Node], old: Any) -> None:
        self.value: dict[Any, Any] = {}
        self.old, self.is_equal = old, old is not UNSET
        self._items = items
        self.steps = self._copy()

    def _copy(self) -> Generator[None, None, None]:
        before = iter(self.old.items()) if self.is_equal else iter(())
        for number, (key, item) in enumerate(self._items.items(), 1):
            value = item.value
            if value is not None and value is not UNSET:
                self.value[key] = value
                self.is_equal = self.is_equal and next(before, None) == (key, value)
            if number % STEP == 0:
                yield
        self.is_equal = self.is_equal and next(before, None) is None

    def update(self, refreshed: Iterable[Node]) -> bool:
        """Set the values of items that were refreshed meanwhile. Return False if another set of items has values, so
        that they must be copied again."""
        for item in refreshed:
            key = item.args[0] if item.args else None
            if self._items.get(key) is not item:
                continue
            has_value = item.value is not None and item.value is not UNSET
            if has_value is not (key in self.value):
                return False
            if has_value:
                self.value[key] = item.value
                self.is_equal = self.is_equal and self.old.get(key) == item.value
        return True
