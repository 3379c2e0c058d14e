"""Merges the control plane's part of a status into an existing status, and keeps the entries of other controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pilot.config.group_kind import GATEWAY_API
from pilot.mesh.ambient.conditions import TYPES
from pilot.mesh.status.policy_status import MAX_ANCESTORS

Plain = dict[str, Any]
OWN_CONDITION_TYPES = (
    frozenset(
        {"Accepted", "Programmed", "ResolvedRefs", "Conflicted", "SupportedVersion", "InsecureFrontendValidationMode"}
    )
    | TYPES
)
"""Condition types that only this controller writes. A condition with one of them is removed when it no longer applies.
"""
_ENTRIES = {"parents": "parentRef", "ancestors": "ancestorRef"}
_MAX_ENTRIES = {"ancestors": MAX_ANCESTORS}


class StatusContext:
    """The generation and time to write into a status. The entries of `controllers` belong to this control plane."""

    def __init__(self, generation: int, now: str, controllers: Iterable[str]) -> None:
        self.generation, self.now, self.controllers = generation, now, frozenset(controllers)


def merge_status(existing: Mapping[str, Any], desired: Mapping[str, Any], context: StatusContext) -> Plain:
    """Return the status fields to write. They equal the fields in `existing` if nothing changed."""
    return {field: _merge_field(field, existing.get(field), value, context) for field, value in desired.items()}


def _merge_field(field: str, existing: Any, value: Any, context: StatusContext) -> Any:
    if field == "conditions":
        return merge_conditions(existing or (), value, context)
    if field == "listeners":
        return _merge_listeners(existing or (), value, context)
    if field in _ENTRIES:
        return _merge_entries(_ENTRIES[field], existing or (), value, context)[: _MAX_ENTRIES.get(field)]
    return value


def merge_conditions(existing: Iterable[Plain], desired: Iterable[Plain], context: StatusContext) -> list[Plain]:
    """Return the merged conditions in their existing order. A transition time changes only if the condition's status
    changes."""
    by_type = {condition.get("type"): condition for condition in existing}
    new = {condition["type"]: _stamp(by_type.get(condition["type"]), condition, context) for condition in desired}
    merged = [
        new.pop(type_, condition)
        for type_, condition in by_type.items()
        if type_ in new or type_ not in OWN_CONDITION_TYPES
    ]
    return [*merged, *new.values()]


def replace_condition(existing: Sequence[Plain], desired: Plain, context: StatusContext) -> list[Plain]:
    """Return the conditions with that of the desired type replaced or added."""
    old = next((condition for condition in existing if condition.get("type") == desired["type"]), None)
    new = _stamp(old, desired, context)
    return [*existing, new] if old is None else [new if condition is old else condition for condition in existing]


def _stamp(existing: Plain | None, desired: Plain, context: StatusContext) -> Plain:
    is_same = existing is not None and existing.get("status") == desired["status"]
    changed_at = (existing or {}).get("lastTransitionTime") if is_same else None
    return {**desired, "observedGeneration": context.generation, "lastTransitionTime": changed_at or context.now}


def _merge_listeners(existing: Iterable[Plain], desired: Iterable[Plain], context: StatusContext) -> list[Plain]:
    by_name = {listener.get("name"): listener for listener in existing}
    return [
        {
            **listener,
            "conditions": merge_conditions(
                by_name.get(listener["name"], {}).get("conditions") or (), listener["conditions"], context
            ),
        }
        for listener in desired
    ]


def _merge_entries(
    field: str, existing: Iterable[Plain], desired: Iterable[Plain], context: StatusContext
) -> list[Plain]:
    """Return the entries of all controllers. Our own keep their existing positions, and new ones follow at the end.

    Our own entries that are no longer desired are removed.
    """
    new_entries = {_entry_key(entry[field], entry["controllerName"]): entry for entry in desired}
    merged: list[Plain] = []
    for entry in existing:
        if entry.get("controllerName") not in context.controllers:
            merged.append(entry)
        elif (new := new_entries.pop(_entry_key(entry.get(field) or {}, entry["controllerName"]), None)) is not None:
            merged.append(
                {**new, "conditions": merge_conditions(entry.get("conditions") or (), new["conditions"], context)}
            )
    return [
        *merged,
        *(
            {**entry, "conditions": merge_conditions((), entry["conditions"], context)}
            for entry in new_entries.values()
        ),
    ]


def _entry_key(ref: Mapping[str, Any], controller: str) -> tuple[Any, ...]:
    """Return the identity of an entry. Absent fields of the reference have the same defaults as in a route."""
    defaults: Mapping[str, Any] = {"group": GATEWAY_API, "kind": "Gateway"}
    fields: Callable[[str], Any] = lambda field: ref.get(field, defaults.get(field))  # noqa: E731
    return controller, *(fields(field) for field in ("group", "kind", "namespace", "name", "sectionName", "port"))
