"""A skeleton puts values together to the mappings and lists of one layout. It is made once for all documents of that layout.

The documents of a large file are mostly of a few layouts. To fill a known skeleton costs a third of what reading the lines anew does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

_Pick = Callable[[list[Any]], Sequence[Any]]


class Skeleton:
    """A mapping or list without its values. `sample` has the number of a value where one is to stand, from 0 to below `count`, or nothing (None)."""

    def __init__(self, sample: Any, count: int) -> None:
        self._steps: list[
            tuple[tuple[str, ...] | None, _Pick]
        ] = []  # the keys of a mapping, and what it holds; the innermost first
        self._nothing = count
        self._used: list[int] = []
        self._add(sample)
        self.takes_all = sorted(self._used) == list(range(count))
        """Says whether each value has exactly one place. One that is a key has none, for other documents would have other keys."""
        self.is_flat = len(self._steps) == 1
        """Says whether nothing inside is a mapping or list, but for values that are."""

    def _add(self, sample: Any) -> int:
        """Adds the steps of a part; returns its place among the values and the parts that were made before."""
        if sample is None:
            return self._nothing
        if isinstance(sample, int):
            self._used.append(sample)
            return sample
        is_mapping = isinstance(sample, dict)
        places = [self._add(part) for part in (sample.values() if is_mapping else sample)]
        self._steps.append((tuple(sample) if is_mapping else None, _picker(places)))
        return self._nothing + len(self._steps)

    def fill(self, values: Iterable[Any]) -> Any:
        """Returns the whole with these values, all of it made anew."""
        found = [*values, None]
        for keys, pick in self._steps:
            found.append(list(pick(found)) if keys is None else dict(zip(keys, pick(found))))  # noqa: B905, strict costs a fifth
        return found[-1]


def _picker(places: Sequence[int]) -> _Pick:
    """Returns what picks out the things at these places."""
    first = places[0] if places else 0
    if list(places) == list(range(first, first + len(places))):
        return itemgetter(slice(first, first + len(places)))
    return itemgetter(*places)
