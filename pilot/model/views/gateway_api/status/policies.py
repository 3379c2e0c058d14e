"""The status of policies of backends: one entry for each target."""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.derive import derived
from pilot.model.condition import Condition, Fault, condition
from pilot.model.config.gateway_api.reference import LocalPolicyTargetReference
from pilot.model.config.object import ObjectKey
from pilot.model.inputs import Mesh
from pilot.model.views.gateway_api.backend_tls import backend_tls_policy, is_ignored
from pilot.model.views.gateway_api.backend_traffic import traffic_policy_targets
from pilot.model.views.kinds.backend_tls_policies import backend_tls_policies
from pilot.model.views.kinds.backend_traffic_policies import backend_traffic_policies

MOST_ANCESTORS = 16
_IGNORED = Condition("Accepted", False, "Ignored", "Policy is ignored: it has the annotation istio.io/ignore-policy-attachment")


class AncestorStatus(NamedTuple):
    """What a policy is told of one of its targets."""

    target: LocalPolicyTargetReference
    conditions: tuple[Condition, ...]


@derived
def backend_tls_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...]:
    """Returns the status of a BackendTLSPolicy by target, of as many as a status may have."""
    row, built = backend_tls_policies.get(db, key), backend_tls_policy(db, key)
    if row is None:
        return ()
    if built is None:
        return _ignored(row.spec.target_refs, row.annotations)
    resolved = condition("ResolvedRefs", built.resolved, "ResolvedRefs", "Configuration is valid")
    return tuple(AncestorStatus(t.ref, (_accepted(t.fault or built.accepted), resolved)) for t in built.targets)[:MOST_ANCESTORS]


@derived
def traffic_policy_status(db: Mesh, key: ObjectKey) -> tuple[AncestorStatus, ...]:
    """Returns the status of an XBackendTrafficPolicy by target."""
    row = backend_traffic_policies.get(db, key)
    if row is None or not db.settings.gateway_api.alpha:
        return ()
    if is_ignored(dict(row.annotations)):
        return _ignored(row.spec.target_refs, row.annotations)
    message = "Configuration is valid"
    if row.spec.session_persistence is not None:
        message += ", but Istio does not support the following fields: sessionPersistence"
    return tuple(AncestorStatus(t.ref, (_accepted(t.fault, message),)) for t in traffic_policy_targets(db, key))[:MOST_ANCESTORS]


def _accepted(fault: Fault | None, message: str = "Configuration is valid") -> Condition:
    return condition("Accepted", fault, "Accepted", message)


def _ignored(targets: tuple[LocalPolicyTargetReference, ...], annotations: Mapping[str, str]) -> tuple[AncestorStatus, ...]:
    return tuple(AncestorStatus(ref, (_IGNORED,)) for ref in targets) if is_ignored(dict(annotations)) else ()
