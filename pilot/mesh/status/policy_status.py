"""The status of backend policies and XBackends. It has an entry for each target, and for each Gateway that routes to
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.gateway_api.reference import LocalPolicyTargetReference, ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import BACKEND, BACKEND_TLS_POLICY, BACKEND_TRAFFIC_POLICY
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.derive import derived
from pilot.mesh.lowering.gateway_api.backend_policies import backend_tls_policy, is_ignored, traffic_policy_targets
from pilot.mesh.lowering.gateway_api.backend_routes import gateways_routing_to
from pilot.mesh.lowering.gateway_api.external_backends import external_backend
from pilot.mesh.model.condition import Fault, StatusCondition, condition
from pilot.mesh.tables.database import Mesh

MAX_ANCESTORS, MAX_PARENTS = 16, 32
_IGNORED = StatusCondition(
    "Accepted", False, "Ignored", "Policy is ignored: it has the annotation istio.io/ignore-policy-attachment"
)


class AncestorStatus(NamedTuple):
    """The conditions of a policy for a target, or for a Gateway that routes to targets.

    `mesh` is True for a target, because clients in the mesh use it.
    """

    ancestor: ParentReference
    conditions: tuple[StatusCondition, ...]
    mesh: bool = True


@derived
def backend_tls_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...]:
    """Return the status of a BackendTLSPolicy, with entries for its targets followed by entries for Gateways.

    A Gateway has the conditions of the first target that it routes to. The number of entries is limited.
    """
    row, policy = BACKEND_TLS_POLICY.get(db, key), backend_tls_policy(db, key)
    if row is None:
        return ()
    if policy is None:
        return _ignored(row.spec.target_refs, row.annotations)
    resolved = condition("ResolvedRefs", policy.resolved, "ResolvedRefs", "Configuration is valid")
    targets = [
        AncestorStatus(_as_parent(target.ref), (_accepted(target.fault or policy.accepted), resolved))
        for target in policy.targets
    ]
    gateways: dict[ObjectKey, tuple[StatusCondition, ...]] = {}
    for target, status in zip(policy.targets, targets, strict=True):
        if target.hosts or target.fault is None or target.fault.reason == "Conflicted":
            backend = ObjectRef(GroupKind(target.ref.group, target.ref.kind), key.namespace, target.ref.name)
            for gateway in gateways_routing_to(db, backend):
                gateways.setdefault(gateway, status.conditions)
    gateway_statuses = (
        AncestorStatus(_gateway(gateway, key.namespace), gateways[gateway], mesh=False) for gateway in sorted(gateways)
    )
    return (*targets, *gateway_statuses)[:MAX_ANCESTORS]


@derived
def traffic_policy_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...]:
    """Return the status of an XBackendTrafficPolicy, with an entry for each target."""
    row = BACKEND_TRAFFIC_POLICY.get(db, key)
    if row is None or not db.settings.gateway_api.alpha:
        return ()
    if is_ignored(dict(row.annotations)):
        return _ignored(row.spec.target_refs, row.annotations)
    message = "Configuration is valid"
    if row.spec.session_persistence is not None:
        message += ", but Istio does not support the following fields: sessionPersistence"
    return tuple(
        AncestorStatus(_as_parent(target.ref), (_accepted(target.fault, message),))
        for target in traffic_policy_targets(db, key)
    )[:MAX_ANCESTORS]


@derived
def backend_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...] | None:
    """Return the status of an XBackend, with an entry for clients in the mesh and for each Gateway that routes to it.

    Return None if the XBackend does not exist or alpha kinds are disabled.
    """
    external = external_backend(db, key)
    if external is None:
        return None
    conditions = (
        _accepted(external.accepted),
        condition("ResolvedRefs", external.resolved, "ResolvedRefs", "Configuration is valid"),
    )
    mesh_status = AncestorStatus(
        ParentReference(group=BACKEND.id.group, kind=BACKEND.id.name, name=key.name), conditions
    )
    gateways = (
        ParentReference(name=owner.name, namespace=owner.namespace)
        for owner in gateways_routing_to(db, ObjectRef(BACKEND.id, *key))
    )
    return (mesh_status, *(AncestorStatus(gateway, conditions, mesh=False) for gateway in gateways))[:MAX_PARENTS]


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


def _gateway(gateway: ObjectKey, namespace: str) -> ParentReference:
    """Return a reference to a Gateway from an object in `namespace`."""
    return ParentReference(name=gateway.name, namespace=gateway.namespace if gateway.namespace != namespace else None)
