"""What the status of an IstioOperator says: how each component is, why, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pilot.install.install_plan import InstallPlan
from pilot.install.installer import InstallOutcome
from pilot.lib.build_info import build_info

Plain = dict[str, Any]
HEALTHY, ERROR, UPDATING, RECONCILING, ACTION_REQUIRED = (
    "HEALTHY",
    "ERROR",
    "UPDATING",
    "RECONCILING",
    "ACTION_REQUIRED",
)
_WORST = (ERROR, ACTION_REQUIRED, UPDATING, RECONCILING, HEALTHY)


class ComponentStatus(NamedTuple):
    """How a component is; `error` says why it is not healthy."""

    status: str
    error: str = ""


Components = Mapping[str, ComponentStatus]


def uniform_status(components: InstallPlan, one: ComponentStatus) -> dict[str, ComponentStatus]:
    """Returns the same status for every component of a plan."""
    return {step.component: one for step in components.steps if step.objects}


def outcome_status(plan: InstallPlan, outcome: InstallOutcome) -> dict[str, ComponentStatus]:
    """Returns how the components are after an installation; a component with several gateways is as its worst_status."""
    failed = {failure.step: failure for failure in outcome.failures}
    found = uniform_status(plan, ComponentStatus(HEALTHY))
    for step in plan.steps:
        if failure := failed.get(step.title):
            before = found[step.component].error if step.component in found else ""
            said = "; ".join((failure.reason, *(line.strip() for line in failure.causes)))
            found[step.component] = ComponentStatus(ERROR, f"{before}; {said}" if before else said)
    return found


def readiness_status(plan: InstallPlan, late: Mapping[str, str]) -> dict[str, ComponentStatus]:
    """Returns how components that were healthy are; `late` has by component what it lacks."""
    return {
        name: ComponentStatus(RECONCILING, late[name]) if name in late else one
        for name, one in uniform_status(plan, ComponentStatus(HEALTHY)).items()
    }


def build_status(components: Components, message: str = "", whole: str = "") -> Plain:
    """Returns the field `status`. `whole` is what all of it is, where that does not follow from its components."""
    version = build_info().version
    listed = {
        name: {"status": one.status, "version": version, **({"error": one.error} if one.error else {})}
        for name, one in sorted(components.items())
    }
    return {
        "status": whole or worst_status(one.status for one in components.values()),
        "message": message,
        "componentStatus": listed,
    }


def worst_status(found: Iterable[str]) -> str:
    """Returns the status that stands for several."""
    there = set(found)
    return next((status for status in _WORST if status in there), HEALTHY)


def build_status_patch(before: Plain, after: Plain) -> Plain:
    """Returns the merge patch that makes one status of another."""
    gone = {name: None for name in (before.get("componentStatus") or {}) if name not in after["componentStatus"]}
    components: Plain = {**gone}
    for name, one in after["componentStatus"].items():
        there = (before.get("componentStatus") or {}).get(name) or {}
        components[name] = {**dict.fromkeys(there.keys() - one.keys()), **one}
    return {"status": {**after, "componentStatus": components}}
