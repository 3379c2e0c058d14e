"""XBackendTrafficPolicies, an alpha kind that limits retries to a Service."""

from __future__ import annotations

from pilot.config.gateway_api.backend import RetryConstraint
from pilot.config.gateway_api.reference import LocalPolicyTargetReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import BACKEND_TRAFFIC_POLICY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.destination_rule import RetryBudget
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.lib.duration import Duration
from pilot.mesh.lowering.gateway_api.backend_tls import PolicyTarget, find_target, is_ignored
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

_INTERVAL, _CONCURRENCY = Duration.of(10), 10


def retry_budget(constraint: RetryConstraint) -> RetryBudget:
    """Return the retry budget, with the defaults of the API."""
    rate = constraint.min_retry_rate
    return RetryBudget(
        percent=float(constraint.budget.percent) if constraint.budget.percent is not None else None,
        budget_interval=constraint.budget.interval or _INTERVAL,
        min_retry_concurrency=rate.count if rate is not None and rate.count is not None else _CONCURRENCY,
    )


@derived
def traffic_policy_targets(db: Mesh, key: ObjectKey) -> tuple[PolicyTarget, ...]:
    """Return the targets of a policy, or () if alpha kinds are disabled or the policy is ignored by annotation."""
    row = BACKEND_TRAFFIC_POLICY.get(db, key)
    if row is None or not db.settings.gateway_api.alpha or is_ignored(dict(row.annotations)):
        return ()
    return tuple(_target(db, key.namespace, ref) for ref in row.spec.target_refs)


def _target(db: Mesh, namespace: str, ref: LocalPolicyTargetReference) -> PolicyTarget:
    kind = GroupKind(ref.group, ref.kind)
    if kind != SERVICE.id:
        return PolicyTarget(
            ref, fault=Fault("TargetNotFound", f"targetRefs invalid: unsupported reference kind: {ref.kind}")
        )
    target = find_target(db, kind, namespace, ref.name)
    return PolicyTarget(ref, fault=target) if isinstance(target, Fault) else PolicyTarget(ref, target.hosts)
