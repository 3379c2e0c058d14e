"""Finds objects of a namespace whose selectors select the same workloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from pilot.config.object import ObjectKey
from pilot.derive import Steps

Labels = frozenset[tuple[str, str]]
MAX_EARLIER = 10
"""Maximum number of earlier objects that are listed for an object."""
MAX_COMPARED = 100
"""Maximum number of objects, the earliest ones, that are compared with a workload for each of its labels.

Comparing all objects with all workloads would take minutes for thousands of both.
"""
STEP = 200
"""Number of selectors that are read in a step."""


class Selecting(NamedTuple):
    """An object and the labels in its selector. Without labels, it selects all workloads."""

    key: ObjectKey
    labels: Labels


def find_overlaps(
    objects: Iterable[Selecting], workloads: Collection[Labels]
) -> Steps[Mapping[ObjectKey, tuple[ObjectKey, ...]]]:
    """Return the earlier objects that select a workload of an object too, keyed by the object.

    `objects` are in their order of precedence, and `workloads` are the labels of each workload.
    """
    by_label: dict[tuple[str, str] | None, list[tuple[int, Selecting]]] = {}
    for position, one in enumerate(objects):
        compared = by_label.setdefault(min(one.labels, default=None), [])
        if len(compared) < MAX_COMPARED:
            compared.append((position, one))
        if position % STEP == 0:
            yield None
    earlier: dict[ObjectKey, dict[ObjectKey, int]] = {}
    for labels in workloads:
        yield None
        matching = sorted(
            (position, one.key)
            for label in (None, *labels)
            for position, one in by_label.get(label, ())
            if one.labels <= labels
        )
        for number, (_, key) in enumerate(matching[1:], 1):
            listed = earlier.setdefault(key, {})
            listed.update((other, position) for position, other in matching[: min(number, MAX_EARLIER)])
    return {
        key: tuple(sorted(listed, key=lambda other: listed[other])[:MAX_EARLIER]) for key, listed in earlier.items()
    }
