"""The status of policies of backends and of XBackends: one entry for each target, and for each Gateway before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.gateway_api.reference import LocalPolicyTargetReference, ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import BACKEND, BACKEND_TLS_POLICY, BACKEND_TRAFFIC_POLICY
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.derive import derived
from pilot.mesh.lowering.gateway_api.backend_tls import backend_tls_policy, is_ignored
from pilot.mesh.lowering.gateway_api.backend_traffic import traffic_policy_targets
from pilot.mesh.lowering.gateway_api.external_backends import external_backend
from pilot.mesh.lowering.gateway_api.policy_ancestors import gateways_before
from pilot.mesh.model.condition import Fault, StatusCondition, condition
from pilot.mesh.tables.database import Mesh

MOST_ANCESTORS, MOST_PARENTS = 16, 32
_IGNORED = StatusCondition(
    "Accepted", False, "Ignored", "Policy is ignored: it has the annotation istio.io/ignore-policy-attachment"
)


class AncestorStatus(NamedTuple):
    """What a policy is told of one of its targets, or of a Gateway that has routes to targets. `mesh`: of a target, for clients in the mesh."""

    ancestor: ParentReference
    conditions: tuple[StatusCondition, ...]
    mesh: bool = True


@derived
def backend_tls_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...]:
    """Returns the status of a BackendTLSPolicy by target, and behind these by Gateway, of as many as a status may have.

    A Gateway is told what the first of the targets is told that it has a route to.
    """
    row, built = BACKEND_TLS_POLICY.get(db, key), backend_tls_policy(db, key)
    if row is None:
        return ()
    if built is None:
        return _ignored(row.spec.target_refs, row.annotations)
    resolved = condition("ResolvedRefs", built.resolved, "ResolvedRefs", "Configuration is valid")
    targets = [
        AncestorStatus(_as_parent(t.ref), (_accepted(t.fault or built.accepted), resolved)) for t in built.targets
    ]
    gateways: dict[ObjectKey, tuple[StatusCondition, ...]] = {}
    for target, told in zip(built.targets, targets, strict=True):
        if target.hosts or target.fault is None or target.fault.reason == "Conflicted":
            backend = ObjectRef(GroupKind(target.ref.group, target.ref.kind), key.namespace, target.ref.name)
            for gateway in gateways_before(db, backend):
                gateways.setdefault(gateway, told.conditions)
    behind = (AncestorStatus(_gateway(at, key.namespace), gateways[at], mesh=False) for at in sorted(gateways))
    return (*targets, *behind)[:MOST_ANCESTORS]


@derived
def traffic_policy_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...]:
    """Returns the status of an XBackendTrafficPolicy by target."""
    row = BACKEND_TRAFFIC_POLICY.get(db, key)
    if row is None or not db.settings.gateway_api.alpha:
        return ()
    if is_ignored(dict(row.annotations)):
        return _ignored(row.spec.target_refs, row.annotations)
    message = "Configuration is valid"
    if row.spec.session_persistence is not None:
        message += ", but Istio does not support the following fields: sessionPersistence"
    return tuple(
        AncestorStatus(_as_parent(t.ref), (_accepted(t.fault, message),)) for t in traffic_policy_targets(db, key)
    )[:MOST_ANCESTORS]


@derived
def backend_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...] | None:
    """Returns the status of an XBackend: for clients in the mesh, and behind that for each Gateway that has a route to it. None while alpha
    kinds are off."""
    found = external_backend(db, key)
    if found is None:
        return None
    told = (
        _accepted(found.accepted),
        condition("ResolvedRefs", found.resolved, "ResolvedRefs", "Configuration is valid"),
    )
    itself = AncestorStatus(ParentReference(group=BACKEND.id.group, kind=BACKEND.id.name, name=key.name), told)
    ways = (
        ParentReference(name=at.name, namespace=at.namespace) for at in gateways_before(db, ObjectRef(BACKEND.id, *key))
    )
    return (itself, *(AncestorStatus(way, told, mesh=False) for way in ways))[:MOST_PARENTS]


def _accepted(fault: Fault | None, message: str = "Configuration is valid") -> StatusCondition:
    return condition("Accepted", fault, "Accepted", message)


def _ignored(
    targets: tuple[LocalPolicyTargetReference, ...], annotations: Mapping[str, str]
) -> tuple[AncestorStatus, ...]:
    return (
        tuple(AncestorStatus(_as_parent(ref), (_IGNORED,)) for ref in targets) if is_ignored(dict(annotations)) else ()
    )


def _as_parent(ref: LocalPolicyTargetReference) -> ParentReference:
    return ParentReference(group=ref.group, kind=ref.kind, name=ref.name, section_name=ref.section_name)


def _gateway(at: ObjectKey, namespace: str) -> ParentReference:
    """Returns a Gateway as objects of a namespace name it."""
    return ParentReference(name=at.name, namespace=at.namespace if at.namespace != namespace else None)
