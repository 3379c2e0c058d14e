"""Mappings that share most of their items with an earlier mapping. Changing one item does not copy the others."""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeVar, overload

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
D = TypeVar("D")


class Patched(Mapping[K, T]):
    """A dict in which some items are replaced. The keys and their order do not change.

    The first read of all items merges the replacements into a new dict.
    """

    __slots__ = ("base", "over")

    def __init__(self, base: dict[K, T], over: dict[K, T]) -> None:
        self.base, self.over = base, over

    def __getitem__(self, key: K) -> T:
        return self.over[key] if key in self.over else self.base[key]

    @overload
    def get(self, key: K, /) -> T | None: ...
    @overload
    def get(self, key: K, /, default: T | D) -> T | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        return self.over[key] if key in self.over else self.base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self.base

    def __iter__(self) -> Iterator[K]:
        return iter(self.base)

    def __len__(self) -> int:
        return len(self.base)

    def keys(self) -> KeysView[K]:
        return self.base.keys()

    def values(self) -> ValuesView[T]:
        return self._whole().values()

    def items(self) -> ItemsView[K, T]:
        return self._whole().items()

    def __repr__(self) -> str:
        return repr(self._whole())

    def _whole(self) -> dict[K, T]:
        if self.over:
            self.base, self.over = {**self.base, **self.over}, {}
        return self.base


def patch(old: dict[K, T] | Patched[K, T], changed: Mapping[K, T]) -> dict[K, T] | Patched[K, T]:
    """Return a mapping in which some items are replaced.

    A mapping of n items is copied only after √n replacements, so the average cost of a replacement is √n.
    """
    base, over = (old.base, {**old.over, **changed}) if isinstance(old, Patched) else (old, {**changed})
    return {**base, **over} if len(over) ** 2 > len(base) else Patched(base, over)
