"""The status of routes. It has an entry for each parent that this control plane manages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from pilot.config.gateway_api.reference import ParentReference
from pilot.config.kinds.gateway_api import GRPC_ROUTE, HTTP_ROUTE
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub
from pilot.lib.suggestion import did_you_mean
from pilot.mesh.lowering.gateway_api.attachments import ListenerAttachment, RejectionReason, attachments
from pilot.mesh.lowering.gateway_api.converted_routes import converted_destinations, converted_rules
from pilot.mesh.lowering.gateway_api.routes import RouteKey, route_binding, route_buckets, routes_in
from pilot.mesh.model.condition import Fault, StatusCondition, condition
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.nacks import nack_condition, nacks_of

_BY_SPECIFICITY = list(RejectionReason)
_COMPARED = 3
"""Maximum number of hostnames of listeners that are compared with that of a route, for each of its parents."""
Place = tuple[str, str]
"""A listener: the name of its Istio Gateway in VirtualServices, and its section name."""


class ParentStatus(NamedTuple):
    """The conditions of a route for one of its parent references."""

    parent: ParentReference
    conditions: tuple[StatusCondition, ...]


@derived
def route_status(db: Mesh, route: RouteKey) -> tuple[ParentStatus, ...]:
    """Return the status of a route, with an entry for each parent reference. Other controllers' parents are omitted."""
    by_reference: dict[ParentReference, list[ListenerAttachment]] = {}
    for attachment in attachments(db, route):
        by_reference.setdefault(attachment.ref, []).append(attachment)
    faults = {
        mesh: _fault(db, route, mesh)
        for mesh in {attachment.is_mesh for group in by_reference.values() for attachment in group}
    }
    binding = route_binding(db, route)
    hostnames = binding.hostnames if binding is not None else ()
    nack_conditions = nack_condition(nacks_of(db, ObjectRef(*route)))
    return tuple(
        ParentStatus(ref, (*build_conditions(group, faults[group[0].is_mesh], hostnames), *nack_conditions))
        for ref, group in by_reference.items()
    )


def _fault(db: Mesh, route: RouteKey, mesh: bool) -> Fault | None:
    """Return the fault of a route's rules, or None if there is none."""
    if route.kind in (HTTP_ROUTE.id, GRPC_ROUTE.id):
        return converted_rules(db, route, mesh).fault
    return converted_destinations(db, route, mesh).fault


def build_conditions(
    attachments: Iterable[ListenerAttachment], fault: Fault | None, hostnames: Sequence[str] = ()
) -> tuple[StatusCondition, ...]:
    """Return the conditions for a parent reference that resolves to the given listeners.

    The route is accepted if any listener accepts it. Otherwise, the most specific reason is reported. If it is that no
    listener has the route's `hostnames`, the message suggests a hostname of a listener instead of the first.
    """
    resolved_listeners = list(attachments)
    accepted = [attachment for attachment in resolved_listeners if attachment.rejection is None]
    rejections = sorted(
        (attachment.rejection for attachment in resolved_listeners if attachment.rejection is not None),
        key=lambda fault: _BY_SPECIFICITY.index(RejectionReason(fault.reason)),
    )
    rejection = None
    if not accepted and rejections:
        reason = rejections[0].reason
        messages = dict.fromkeys(fault.message for fault in rejections if fault.reason == reason)
        hint = ""
        if reason == RejectionReason.NO_HOSTNAME and hostnames:
            names = {attachment.parent.hostname for attachment in resolved_listeners}
            hint = _suggest_hostname(hostnames[0], names)
        rejection = Fault(str(reason), "; ".join(messages) + hint)
    bound = f"Route was valid, bound to {len(accepted)} parents" if len(accepted) > 1 else "Route was valid"
    return (
        condition("Accepted", rejection, "Accepted", bound),
        condition("ResolvedRefs", fault, "ResolvedRefs", "All references resolved"),
    )


def _suggest_hostname(hostname: str, names: Set[str]) -> str:
    """Return the end of the message for a hostname that no listener has, whose hostnames are `names`."""
    if f"*.{hostname}" in names:
        return f"; *.{hostname} does not include {hostname}, so add a listener with the hostname {hostname}"
    label = hostname.partition(".")[0]
    meant = (name.replace("*", label, 1) for name in names)
    return did_you_mean(hostname, sorted(meant, key=lambda name: (abs(len(name) - len(hostname)), name))[:_COMPARED])


@derived
def _accepting_listeners(db: Mesh, route: RouteKey) -> frozenset[Place] | None:
    return (
        frozenset(
            (attachment.parent.gateway, attachment.parent.section)
            for attachment in attachments(db, route)
            if attachment.rejection is None and not attachment.is_mesh
        )
        or None
    )


_by_route: Gather[RouteKey, [int], frozenset[Place]] = Gather(
    "listeners_of_routes", routes_in, _accepting_listeners, passed=lambda key, bucket: ()
)


@derived
def _counts_in(db: Mesh, bucket: int) -> Mapping[Place, int] | None:
    return Counter(place for places in _by_route(db, bucket).values() for place in places)


_counts_by_bucket: Gather[int, [], Mapping[Place, int]] = Gather("routes_by_listener", route_buckets, _counts_in)


@hub
def _counts(db: Mesh) -> Mapping[Place, int]:
    total: Counter[Place] = Counter()
    for counts in _counts_by_bucket(db).values():
        total.update(counts)
    return total


@derived
def attached_routes(db: Mesh, place: tuple[str, str]) -> int:
    """Return the number of routes that are attached to a listener. Only edits that change attachments affect it."""
    return _counts(db).get(place, 0)
