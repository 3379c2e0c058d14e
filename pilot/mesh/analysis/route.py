"""Checks that the routes of a namespace do not have too many parts together."""

from __future__ import annotations

from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.lowering.gateway_api.http_services import MAX_PARTS, MAX_RULES, excess_parts
from pilot.mesh.lowering.gateway_api.routes import RouteKey
from pilot.mesh.tables.database import Mesh


@derived
def _excess_keys(db: Mesh) -> tuple[RouteKey, ...]:
    return tuple(excess_parts(db))


@derived
def route_problems(db: Mesh, key: RouteKey) -> tuple[Problem, ...]:
    """Return the problem of a route that is beyond the limit for its namespace."""
    parts = excess_parts(db).get(key)
    if parts is None:
        return ()
    return (
        Problem(
            code="too-large",
            object=ObjectRef(*key),
            path="spec.parentRefs",
            message=f"the routes of namespace {key.namespace} have more than {MAX_PARTS} combinations of route, "
            f"listener and host, or more than {MAX_RULES} rules in them; this route, with {parts} combinations, is "
            "ignored; attach routes to fewer listeners",
            severity=Severity.WARNING,
        ),
    )


ROUTES = Check("excess route", _excess_keys, route_problems)
