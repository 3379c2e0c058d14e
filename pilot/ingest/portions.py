"""Divides large changes of a namespace into portions, so that changes of others do not wait for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.service_entry import CLUSTER_ENDPOINTS, HOST_ENDPOINTS, count_expanded
from pilot.config.object import age

T = TypeVar("T")
PORTION = 25_000
"""Maximum size of the changes of a namespace that are in progress, in endpoints as `count_expanded` counts them.

It corresponds to 360 to 600 clusters, whose translation for a proxy takes a few tenths of a second.
"""
LONGEST_PROCESSING = 2.0
"""Number of seconds after which the next portion no longer waits until the previous one was processed."""
_SIZES: dict[str, Callable[[Any], int]] = {
    SERVICE_ENTRY.table_name: lambda row: HOST_ENDPOINTS + count_expanded(row.spec),
    SERVICE.table_name: lambda row: HOST_ENDPOINTS + len(row.spec.first_ports) * CLUSTER_ENDPOINTS,
}
"""Functions that return the size of a row, by table. Rows of other tables have no size."""


class Portions:
    """Decides which edits of a namespace are committed now, and which are left to later commits.

    If the services of a change have many clusters, each commit contains a portion of at most `PORTION`. The next
    portion is due when `are_processed` returns that the responses to all proxies have been computed. Edits of a
    namespace that follow a large one wait with it. Namespaces do not affect each other.
    """

    def __init__(self, now: Callable[[], float], are_processed: Callable[[], bool]) -> None:
        self._now, self._are_processed = now, are_processed
        self._taken: Counter[str] = Counter()
        self._exhausted: set[str] = set()
        self._started_at = float("-inf")

    def is_due(self) -> bool:
        """Return whether the next portion may be committed."""
        return self._now() - self._started_at >= LONGEST_PROCESSING or self._are_processed()

    def begin(self) -> bool:
        """Begin a commit. Return whether it begins the next portions, because they are due."""
        self._exhausted.clear()
        is_due = self.is_due()
        if is_due:
            self._taken.clear()
            self._started_at = self._now()
        return is_due

    def order(self, edits: Mapping[tuple[str, Hashable], T]) -> list[tuple[tuple[str, Hashable], T]]:
        """Return the edits of a commit in the order in which portions are taken.

        Rows that have a size are ordered by age, because the oldest take precedence in the limits of a namespace.
        Otherwise, each portion could exclude what the previous ones contained. All other edits keep their places.
        """
        ordered = list(edits.items())
        places = [place for place, ((table, _), row) in enumerate(ordered) if table in _SIZES and row is not None]
        by_age = sorted((ordered[place] for place in places), key=lambda edit: age(edit[1]))  # type: ignore[arg-type]
        for place, edit in zip(places, by_age, strict=True):
            ordered[place] = edit
        return ordered

    def take(self, table: str, key: Hashable, row: Any) -> bool:
        """Return whether an edit belongs to the commit. A portion contains at least one edit, however large it is."""
        namespace = getattr(key, "namespace", "")
        if namespace in self._exhausted:
            return False
        size_of = _SIZES.get(table)
        if size_of is not None and row is not None:
            size = size_of(row)
            if 0 < self._taken[namespace] > PORTION - size:
                self._exhausted.add(namespace)
                return False
            self._taken[namespace] += size
        return True
