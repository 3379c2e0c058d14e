"""The status of routes: one entry for each parent that is of this control plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilot.config.gateway_api.reference import ParentReference
from pilot.config.kinds.gateway_api import GRPC_ROUTE, HTTP_ROUTE
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub
from pilot.mesh.lowering.gateway_api.attachments import Denial, ListenerAttachment, attachments
from pilot.mesh.lowering.gateway_api.conversion import converted_destinations, converted_rules
from pilot.mesh.lowering.gateway_api.route_objects import RouteKey, all_routes
from pilot.mesh.model.condition import Fault, StatusCondition, condition
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import nack_condition, nacks_of

_SAYS_MOST = list(Denial)
Place = tuple[str, str]
"""A listener: its Gateway as VirtualServices name it, and its section."""


class ParentStatus(NamedTuple):
    """What a route is told of one of its references."""

    parent: ParentReference
    conditions: tuple[StatusCondition, ...]


@derived
def route_status(db: Mesh, route: RouteKey) -> tuple[ParentStatus, ...]:
    """Returns the status of a route by parent; references to what is not of this control plane have none."""
    found: dict[ParentReference, list[ListenerAttachment]] = {}
    for one in attachments(db, route):
        found.setdefault(one.ref, []).append(one)
    faults = {mesh: _fault(db, route, mesh) for mesh in {one.is_mesh for ones in found.values() for one in ones}}
    refused = nack_condition(nacks_of(db, ObjectRef(*route)))
    return tuple(
        ParentStatus(ref, (*build_conditions(ones, faults[ones[0].is_mesh]), *refused)) for ref, ones in found.items()
    )


def _fault(db: Mesh, route: RouteKey, mesh: bool) -> Fault | None:
    """Returns what is wrong with the rules of a route."""
    if route.kind in (HTTP_ROUTE.id, GRPC_ROUTE.id):
        return converted_rules(db, route, mesh).fault
    return converted_destinations(db, route, mesh).fault


def build_conditions(ones: Iterable[ListenerAttachment], fault: Fault | None) -> tuple[StatusCondition, ...]:
    """Returns the conditions of a reference that means several listeners: it is accepted where one of them takes the route, else what says
    most of why none does is told."""
    attached = list(ones)
    taken = [one for one in attached if one.denied is None]
    denied = sorted(
        (one.denied for one in attached if one.denied is not None), key=lambda d: _SAYS_MOST.index(Denial(d.reason))
    )
    told = None
    if not taken and denied:
        alike = dict.fromkeys(d.message for d in denied if d.reason == denied[0].reason)
        told = Fault(str(denied[0].reason), "; ".join(alike))
    bound = f"Route was valid, bound to {len(taken)} parents" if len(taken) > 1 else "Route was valid"
    return (
        condition("Accepted", told, "Accepted", bound),
        condition("ResolvedRefs", fault, "ResolvedRefs", "All references resolved"),
    )


@derived
def _all_routes(db: Mesh) -> tuple[RouteKey, ...]:
    return all_routes(db)


@derived
def _taken_by(db: Mesh, route: RouteKey) -> frozenset[Place] | None:
    return (
        frozenset(
            (a.parent.gateway, a.parent.section) for a in attachments(db, route) if a.denied is None and not a.is_mesh
        )
        or None
    )


_by_route: Gather[RouteKey, [], frozenset[Place]] = Gather("listeners_of_routes", _all_routes, _taken_by)


@hub
def _counts(db: Mesh) -> Mapping[Place, int]:
    return Counter(place for places in _by_route(db).values() for place in places)


@derived
def attached_routes(db: Mesh, place: tuple[str, str]) -> int:
    """Returns how many routes a listener has taken. An edit of a route that stays where it is attached reaches no count."""
    return _counts(db).get(place, 0)
