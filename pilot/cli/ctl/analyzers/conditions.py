"""Reports conditions in the status of objects that say that something does not work."""

from __future__ import annotations

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects, Plain, mappings
from pilot.cli.ctl.analyzers.analyzer import (
    AUTHORIZATION_POLICY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    KUBERNETES_GATEWAY,
    SERVICE,
    SERVICE_ENTRY,
    WORKLOAD_ENTRY,
    Analyzer,
    Reports,
)
from pilot.config.problem import warning

NEGATIVE_CONDITION = "negative-condition"
_ROUTE_TYPES = ("Accepted", "Programmed", "ResolvedRefs")
_BOUND = ("istio.io/WaypointBound",)
_TYPES = {
    SERVICE: _BOUND,
    SERVICE_ENTRY: _BOUND,
    WORKLOAD_ENTRY: _BOUND,
    AUTHORIZATION_POLICY: ("ZtunnelAccepted", "WaypointAccepted"),
    KUBERNETES_GATEWAY: _ROUTE_TYPES,
    HTTP_ROUTE: _ROUTE_TYPES,
    GRPC_ROUTE: _ROUTE_TYPES,
}
"""The types of conditions that are reported if they are false."""


def _check(objects: AnalyzedObjects) -> Reports:
    for kind, types in _TYPES.items():
        for one in objects.of(kind.id):
            for path, condition in _conditions(one):
                name, reason = str(condition.get("type")), str(condition.get("reason"))
                is_negative = name in types and condition.get("status") == "False"
                if is_negative or (name == "WaypointAccepted" and reason == "PartiallyInvalid"):
                    text = f"the condition {name} is {condition.get('status')}: {reason}: {condition.get('message')}"
                    yield one, warning(NEGATIVE_CONDITION, path, text)


def _conditions(one: AnalyzedObject) -> list[tuple[str, Plain]]:
    """Return the conditions of an object, and those of a route at its parents, with their paths."""
    lists = [("status", one.part("status"))]
    lists += [(f"status.parents[{index}]", each) for index, each in enumerate(one.items("status", "parents"))]
    return [
        (f"{path}.conditions[{index}]", condition)
        for path, part in lists
        for index, condition in enumerate(mappings(part.get("conditions")))
    ]


CONDITIONS = Analyzer("conditions.ConditionAnalyzer", tuple(_TYPES), _check)
