"""Reports the problems in the status of an object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from pilot.config.gateway_api.gateway import Gateway, Listener, ListenerSet
from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import BACKEND_TLS_POLICY, KUBERNETES_GATEWAY
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import ObjectRef, Problem, Problems, Severity, warning
from pilot.derive import derived
from pilot.lib.suggestion import choices
from pilot.mesh.ambient.conditions import WAYPOINT_BOUND
from pilot.mesh.analysis.check import Check
from pilot.mesh.analysis.credential import namespaces_with
from pilot.mesh.analysis.foreign_reference import NOT_PERMITTED, check_references
from pilot.mesh.gateway_api.gateways import is_managed, parent_gateway, routers_of
from pilot.mesh.gateway_api.listeners import ROUTES
from pilot.mesh.lowering.gateway_api.backend_policies import BackendTarget, find_target
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.status.gateway_status import GatewayStatus
from pilot.mesh.status.object_status import (
    BackendStatus,
    ObjectConditions,
    PolicyStatus,
    PoolStatus,
    RouteStatus,
    Status,
    object_status,
    object_with_status,
    objects_with_status,
)
from pilot.mesh.status.route_status import ParentStatus
from pilot.mesh.tables.credentials import has_api_server, secret_namespaces
from pilot.mesh.tables.database import Mesh

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MAX_SECRETS = 2
"""Maximum number of Secrets of a listener, as of its certificates."""
_SUMMARIES = ("ListenersNotValid",)
_PENDING, _UNUSABLE = ("AddressNotAssigned",), "AddressNotUsable"
FaultyCondition = tuple[str, StatusCondition]


@derived
def status_problems(db: Mesh, ref: ObjectRef) -> tuple[Problem, ...]:
    """Return the problems that the status of an object reports."""
    status = object_status(db, ref)
    if status is None:
        return ()
    row = object_with_status(db, ref) if isinstance(status, RouteStatus | GatewayStatus | PolicyStatus) else None
    if isinstance(status, RouteStatus):
        status = RouteStatus(tuple(_explained(db, ref, parent) for parent in status.parents))
    if row is not None and isinstance(status, GatewayStatus):
        status = _with_places_of_secrets(db, row, status)
    if row is not None and isinstance(status, GatewayStatus) and _lacks_deployer(db, row):
        status = status._replace(conditions=tuple(c for c in status.conditions if c.reason != _UNUSABLE))
    problems = build_problems(ref, status, row.spec.parent_refs if row is not None and ref.kind in ROUTES else ())
    return tuple(_with_places(db, row, problems)) if row is not None else problems


def _lacks_deployer(db: Mesh, o: Object[Gateway | ListenerSet]) -> bool:
    """Return whether the Service of a Gateway, or of the parent of a ListenerSet, is missing because there is no API
    server in which to create it."""
    key = o.key if isinstance(o.spec, Gateway) else parent_gateway(db, o.key)
    gateway = KUBERNETES_GATEWAY.get(db, key) if key is not None else None
    if gateway is None or has_api_server(db) or not is_managed(db, gateway.spec):
        return False
    hosts = routers_of(db, gateway.key).services
    return all(service(db, ServiceRef(host, gateway.namespace)) is None for host in hosts)


def _with_places_of_secrets(db: Mesh, o: Object[Gateway | ListenerSet], status: GatewayStatus) -> GatewayStatus:
    """Return the status of a Gateway whose messages on missing Secrets name the namespaces that have them."""
    hints = [_secrets_elsewhere(db, o, listener) for listener in o.spec.listeners]
    if not any(hints) or len(hints) != len(status.listeners):
        return status
    listeners = []
    for listener, hint in zip(status.listeners, hints, strict=True):
        conditions = (
            c._replace(message=c.message + hint) if c.reason == "InvalidCertificateRef" else c
            for c in listener.conditions
        )
        listeners.append(listener._replace(conditions=tuple(conditions)))
    return status._replace(listeners=tuple(listeners))


def _secrets_elsewhere(db: Mesh, o: Object[Any], listener: Listener) -> str:
    """Return a hint on the Secrets of a listener that other namespaces have."""
    hints = []
    for ref in listener.tls.certificate_refs[:_MAX_SECRETS] if listener.tls is not None else ():
        places = secret_namespaces(db, ref.name)
        named = namespaces_with(db, ref.name) if (ref.namespace or o.namespace) not in places else ""
        if named:
            hints.append(
                f"; Secret {ref.name} is in namespace {named}: create it in {o.namespace}, or set the namespace of the "
                f"reference and add a ReferenceGrant there that allows {o.kind.name}s of {o.namespace} to use Secrets"
            )
    return "".join(hints)


STATUSES = Check("status", objects_with_status, status_problems)


def _with_places(db: Mesh, row: Object[Any], problems: Sequence[Problem]) -> Problems:
    """Yield problems with references that are named by their fields and with the remedy, where the fields are known."""
    checks = {NOT_PERMITTED: check_references, "target-not-found": _check_sections}
    for code in dict.fromkeys(problem.code for problem in problems):
        placed: dict[str, Problem] = {}
        for problem in checks[code](db, row) if code in checks else ():
            placed.setdefault(problem.message, replace(problem, object=row.ref))
        yield from placed.values() or (problem for problem in problems if problem.code == code)


def _check_sections(db: Mesh, o: Object[Any]) -> Problems:
    """Yield a problem for each target of a BackendTLSPolicy that has no port with the name in the policy."""
    for index, ref in enumerate(o.spec.target_refs if o.kind == BACKEND_TLS_POLICY.id else ()):
        target = find_target(db, GroupKind(ref.group, ref.kind), o.namespace, ref.name)
        if isinstance(target, BackendTarget) and ref.section_name and ref.section_name not in target.ports:
            text = (
                f'{ref.kind} {o.namespace}/{ref.name} has no port named "{ref.section_name}": sectionName is the name '
                f"of a port{choices(ref.section_name, sorted(target.ports))}"
            )
            yield warning("target-not-found", f"spec.targetRefs[{index}].sectionName", text)


def _explained(db: Mesh, ref: ObjectRef, status: ParentStatus) -> ParentStatus:
    """Return the status of a route for a parent.

    If the Gateway accepts no routes of other namespaces, the message names the listener.
    """
    parent, faults = status.parent, status.conditions
    namespace = parent.namespace or ref.namespace
    if namespace == ref.namespace or not any(c.reason == "NotAllowedByListeners" for c in faults):
        return status
    gateway = KUBERNETES_GATEWAY.get(db, ObjectKey(namespace, parent.name)) if parent.kind == "Gateway" else None
    closed = [
        index
        for index, listener in enumerate(gateway.spec.listeners if gateway is not None else ())
        if listener.allowed_routes.namespaces.from_ == "Same" and parent.section_name in (None, listener.name)
    ]
    if not closed:
        return status
    message = (
        f"Gateway {namespace}/{parent.name} accepts routes only from its own namespace; "
        f"set listeners[{closed[0]}].allowedRoutes.namespaces.from to All or Selector"
    )
    return status._replace(
        conditions=tuple(c._replace(message=message) if c.reason == "NotAllowedByListeners" else c for c in faults)
    )


def build_problems(ref: ObjectRef, status: Status, parents: Sequence[ParentReference] = ()) -> tuple[Problem, ...]:
    """Return a problem for each false condition, without duplicates. `parents` are the parentRefs of a route."""
    problems: dict[tuple[str, str], Problem] = {}
    for path, condition in _faults(status, parents):
        if condition.reason not in _SUMMARIES:
            problem = Problem(
                code=_WORD.sub("-", condition.reason).lower(),
                object=ref,
                path=path,
                message=condition.message,
                severity=Severity.INFO if condition.reason in _PENDING else Severity.WARNING,
            )
            problems.setdefault((condition.reason, condition.message), problem)
    return tuple(problems.values())


def _faults(status: Status, parents: Sequence[ParentReference]) -> Iterator[FaultyCondition]:
    """Yield each condition that reports a fault, with the path of the field that it concerns."""
    if isinstance(status, GatewayStatus):
        for n, listener in enumerate(status.listeners):
            yield from _wrong(f"spec.listeners[{n}]", _causes(listener.conditions))
        yield from _wrong("spec", status.conditions)
    elif isinstance(status, ObjectConditions):
        yield from (("metadata.labels", c) for c in status.conditions if c.type == WAYPOINT_BOUND and not c.status)
    elif isinstance(status, RouteStatus):
        for parent in status.parents:
            path = f"spec.parentRefs[{parents.index(parent.parent)}]" if parent.parent in parents else "spec"
            for condition in _false(parent.conditions):
                if condition.reason != "Rejected":  # the check for NACKs reports it
                    yield ("spec.rules" if condition.type != "Accepted" else path), condition
    elif isinstance(status, PolicyStatus):
        for n, ancestor in enumerate(status.ancestors):
            yield from _wrong(f"spec.targetRefs[{n}]" if ancestor.mesh else "spec.targetRefs", ancestor.conditions)
    elif isinstance(status, BackendStatus | PoolStatus):
        for conditions in (of.conditions for of in status.parents):
            yield from _wrong("spec.endpointPickerRef" if isinstance(status, PoolStatus) else "spec", conditions)


def _causes(conditions: Iterable[StatusCondition]) -> Iterator[StatusCondition]:
    """Yield the false conditions of a listener, except those that follow from its unresolved references."""
    wrong = list(_false(conditions))
    unresolved = next((c for c in wrong if c.type == "ResolvedRefs"), None)
    for one in wrong:
        follows = one.reason == "Invalid" or (unresolved is not None and one.message == unresolved.message)
        if unresolved is None or one is unresolved or not follows:
            yield one


def _wrong(path: str, conditions: Iterable[StatusCondition]) -> Iterator[FaultyCondition]:
    return ((path, condition) for condition in _false(conditions))


def _false(conditions: Iterable[StatusCondition]) -> Iterator[StatusCondition]:
    return (c for c in conditions if not c.status and c.type in ("Accepted", "Programmed", "ResolvedRefs"))
