"""A status that an object has, with what we tell of it put in: what others have written there stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pilot.config.group_kind import GATEWAY_API
from pilot.mesh.ambient.conditions import TYPES
from pilot.mesh.status.policies import MOST_ANCESTORS

Plain = dict[str, Any]
OURS = (
    frozenset(
        {"Accepted", "Programmed", "ResolvedRefs", "Conflicted", "SupportedVersion", "InsecureFrontendValidationMode"}
    )
    | TYPES
)
"""Types of conditions that are ours alone: one that does not hold any more goes."""
_ENTRIES = {"parents": "parentRef", "ancestors": "ancestorRef"}
_MOST = {"ancestors": MOST_ANCESTORS}


class Moment:
    """What a status is written with. `controllers`: the names whose entries are ours."""

    def __init__(self, generation: int, now: str, controllers: Iterable[str]) -> None:
        self.generation, self.now, self.controllers = generation, now, frozenset(controllers)


def merge_status(old: Mapping[str, Any], wanted: Mapping[str, Any], moment: Moment) -> Plain:
    """Returns the fields of a status that we write. They equal those of `old` where nothing has changed."""
    return {field: _merge_field(field, old.get(field), value, moment) for field, value in wanted.items()}


def _merge_field(field: str, old: Any, value: Any, moment: Moment) -> Any:
    if field == "conditions":
        return merge_conditions(old or (), value, moment)
    if field == "listeners":
        return _merge_listeners(old or (), value, moment)
    if field in _ENTRIES:
        return _merge_entries(_ENTRIES[field], old or (), value, moment)[: _MOST.get(field)]
    return value


def merge_conditions(old: Iterable[Plain], wanted: Iterable[Plain], moment: Moment) -> list[Plain]:
    """Returns conditions in the order in which they are. The time of one is that of when its status last changed."""
    known = {condition.get("type"): condition for condition in old}
    made = {condition["type"]: _stamped(known.get(condition["type"]), condition, moment) for condition in wanted}
    kept = [made.pop(type_, condition) for type_, condition in known.items() if type_ in made or type_ not in OURS]
    return [*kept, *made.values()]


def _stamped(old: Plain | None, wanted: Plain, moment: Moment) -> Plain:
    same = old is not None and old.get("status") == wanted["status"]
    changed = (old or {}).get("lastTransitionTime") if same else None
    return {**wanted, "observedGeneration": moment.generation, "lastTransitionTime": changed or moment.now}


def _merge_listeners(old: Iterable[Plain], wanted: Iterable[Plain], moment: Moment) -> list[Plain]:
    known = {listener.get("name"): listener for listener in old}
    return [
        {
            **listener,
            "conditions": merge_conditions(
                known.get(listener["name"], {}).get("conditions") or (), listener["conditions"], moment
            ),
        }
        for listener in wanted
    ]


def _merge_entries(field: str, old: Iterable[Plain], wanted: Iterable[Plain], moment: Moment) -> list[Plain]:
    """Returns the entries of all controllers: ours where they were, then those that are new; those of ours that are not wanted go."""
    waiting = {_name(entry[field], entry["controllerName"]): entry for entry in wanted}
    out: list[Plain] = []
    for entry in old:
        if entry.get("controllerName") not in moment.controllers:
            out.append(entry)
        elif (new := waiting.pop(_name(entry.get(field) or {}, entry["controllerName"]), None)) is not None:
            out.append(
                {**new, "conditions": merge_conditions(entry.get("conditions") or (), new["conditions"], moment)}
            )
    return [
        *out,
        *({**entry, "conditions": merge_conditions((), entry["conditions"], moment)} for entry in waiting.values()),
    ]


def _name(ref: Mapping[str, Any], controller: str) -> tuple[Any, ...]:
    """Returns what an entry is known by; absent fields of a reference mean what they mean in a route."""
    defaults: Mapping[str, Any] = {"group": GATEWAY_API, "kind": "Gateway"}
    fields: Callable[[str], Any] = lambda field: ref.get(field, defaults.get(field))  # noqa: E731
    return controller, *(fields(field) for field in ("group", "kind", "namespace", "name", "sectionName", "port"))
