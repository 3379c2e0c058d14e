"""The status of an IstioOperator and of each of its components."""

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
_BY_SEVERITY = (ERROR, ACTION_REQUIRED, UPDATING, RECONCILING, HEALTHY)


class ComponentStatus(NamedTuple):
    """The status of a component. `error` is the reason why it is not healthy."""

    status: str
    error: str = ""


Components = Mapping[str, ComponentStatus]


def uniform_status(plan: InstallPlan, status: ComponentStatus) -> dict[str, ComponentStatus]:
    """Return the same status for every component of a plan."""
    return {step.component: status for step in plan.steps if step.objects}


def outcome_status(plan: InstallPlan, outcome: InstallOutcome) -> dict[str, ComponentStatus]:
    """Return the status of each component after an installation. A component with a failed gateway has failed."""
    failures = {failure.step: failure for failure in outcome.failures}
    components = uniform_status(plan, ComponentStatus(HEALTHY))
    for step in plan.steps:
        if failure := failures.get(step.title):
            previous = components[step.component].error if step.component in components else ""
            error = "; ".join((failure.reason, *(line.strip() for line in failure.details)))
            components[step.component] = ComponentStatus(ERROR, f"{previous}; {error}" if previous else error)
    return components


def readiness_status(plan: InstallPlan, unready: Mapping[str, str]) -> dict[str, ComponentStatus]:
    """Return the status of each installed component. `unready` maps unready components to the reasons."""
    return {
        name: ComponentStatus(RECONCILING, unready[name]) if name in unready else healthy
        for name, healthy in uniform_status(plan, ComponentStatus(HEALTHY)).items()
    }


def build_status(components: Components, message: str = "", overall: str = "") -> Plain:
    """Return the status field of an IstioOperator. `overall` defaults to the worst status of the components."""
    version = build_info().version
    component_status = {
        name: {
            "status": component.status,
            "version": version,
            **({"error": component.error} if component.error else {}),
        }
        for name, component in sorted(components.items())
    }
    return {
        "status": overall or worst_status(component.status for component in components.values()),
        "message": message,
        "componentStatus": component_status,
    }


def worst_status(statuses: Iterable[str]) -> str:
    """Return the most severe status."""
    present = set(statuses)
    return next((status for status in _BY_SEVERITY if status in present), HEALTHY)


def build_status_patch(before: Plain, after: Plain) -> Plain:
    """Return the merge patch that changes one status into another."""
    previous = before.get("componentStatus") or {}
    components: Plain = {name: None for name in previous if name not in after["componentStatus"]}
    for name, component in after["componentStatus"].items():
        removed_fields = (previous.get(name) or {}).keys() - component.keys()
        components[name] = {**dict.fromkeys(removed_fields), **component}
    return {"status": {**after, "componentStatus": components}}
