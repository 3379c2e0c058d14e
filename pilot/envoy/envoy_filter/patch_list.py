"""Adds, inserts, replaces and removes items of the lists whose order matters: filters, and routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.lib.protobuf.fault import Violation

Chosen = Callable[[Any], bool]
"""Tells whether an item is the one that a patch names."""


def change_list(items: Any, patch: ParsedPatch, chosen: Chosen | None, effects: Effects, end: int | None = None) -> None:
    """Applies a patch that does not merge. `chosen`: None where it names no item: then it inserts at the beginning or the end, and replaces
    and removes nothing. `end`: the position behind which nothing may stand, where that is not the end of the list."""
    last = len(items) if end is None else end
    if patch.operation == "REMOVE":
        _remove(items, patch, chosen, effects)
        return
    if chosen is None:
        at = {"ADD": last, "INSERT_AFTER": last, "INSERT_FIRST": 0, "INSERT_BEFORE": 0}.get(patch.operation)
    else:
        found = next((index for index, item in enumerate(items) if chosen(item)), None)
        at = _position(patch.operation, found, last)
    if at is None:
        return
    if patch.operation == "REPLACE":
        items[at].CopyFrom(patch.value)
    elif at > last:
        effects.refuse(
            patch,
            Violation(
                "behind-last-filter",
                (),
                f"{items[last].name} ends what becomes of a request, nothing can stand behind it",
            ),
        )
        return
    else:
        items.insert(at, patch.value)
    effects.apply(patch)


def _position(operation: str, found: int | None, last: int) -> int | None:
    """Returns where an item is put, or which one is replaced; None where the named one is not there. What is added or goes first needs none."""
    if operation == "ADD":
        return last
    if operation == "INSERT_FIRST":
        return 0
    return found if found is None or operation != "INSERT_AFTER" else found + 1


def _remove(items: Any, patch: ParsedPatch, chosen: Chosen | None, effects: Effects) -> None:
    for index in range(len(items) - 1, -1, -1):
        if chosen is not None and chosen(items[index]):
            del items[index]
            effects.apply(patch)
