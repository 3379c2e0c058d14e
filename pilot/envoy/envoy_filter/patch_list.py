"""Adds, inserts, replaces and removes items of ordered lists, such as filters and routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.lib.protobuf.fault import Violation

IsTarget = Callable[[Any], bool]
"""A predicate that returns whether an item is the one that a patch names."""


def change_list(
    items: Any, patch: ParsedPatch, is_target: IsTarget | None, effects: Effects, end: int | None = None
) -> None:
    """Apply a patch that does not merge its value.

    `is_target` is None if the patch names no item. Such a patch can only insert an item at the beginning or end of the
    list. `end` is the last position at which items may be inserted, or None for the end of the list.
    """
    end_position = len(items) if end is None else end
    if patch.operation == "REMOVE":
        _remove(items, patch, is_target, effects)
        return
    if is_target is None:
        positions = {"ADD": end_position, "INSERT_AFTER": end_position, "INSERT_FIRST": 0, "INSERT_BEFORE": 0}
        position = positions.get(patch.operation)
    else:
        target = next((index for index, item in enumerate(items) if is_target(item)), None)
        position = _position(patch.operation, target, end_position)
    if position is None:
        return
    if patch.operation == "REPLACE":
        items[position].CopyFrom(patch.value)
    elif position > end_position:
        effects.record_misfit(
            patch,
            Violation(
                "behind-last-filter",
                (),
                f"{items[end_position].name} is a terminal filter; no filter can follow it",
            ),
        )
        return
    else:
        items.insert(position, patch.value)
    effects.record_applied(patch)


def _position(operation: str, target: int | None, end_position: int) -> int | None:
    """Return the position of an insertion or replacement, or None if the named item does not exist.

    ADD and INSERT_FIRST do not require the named item.
    """
    if operation == "ADD":
        return end_position
    if operation == "INSERT_FIRST":
        return 0
    return target if target is None or operation != "INSERT_AFTER" else target + 1


def _remove(items: Any, patch: ParsedPatch, is_target: IsTarget | None, effects: Effects) -> None:
    for index in range(len(items) - 1, -1, -1):
        if is_target is not None and is_target(items[index]):
            del items[index]
            effects.record_applied(patch)
