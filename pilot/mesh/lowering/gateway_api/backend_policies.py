"""BackendTLSPolicies and XBackendTrafficPolicies: their targets, and their conversion to Istio's settings."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pilot.config.gateway_api.backend import BackendTLSPolicy, RetryConstraint
from pilot.config.gateway_api.reference import LocalPolicyTargetReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import BACKEND_TLS_POLICY, BACKEND_TRAFFIC_POLICY
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.destination_rule import ClientTLSSettings, RetryBudget
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.lib.duration import Duration
from pilot.mesh.lowering.gateway_api.policy_tls import find_roots, subject_names
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh

IGNORED = "istio.io/ignore-policy-attachment"


class PolicyTarget(NamedTuple):
    """A target of a policy, and its hosts. If `fault` is set, the policy does not apply to the target.

    The target is a Service or a ServiceEntry. `port` is the port of the section that the policy names, or 0 for all
    ports.
    """

    ref: LocalPolicyTargetReference
    hosts: tuple[str, ...] = ()
    port: int = 0
    fault: Fault | None = None


class ConvertedBackendTLS(msgspec.Struct, frozen=True):
    """A converted BackendTLSPolicy.

    `resolved` and `accepted` are faults of its root certificates. The conditions ResolvedRefs and Accepted report them.
    """

    key: ObjectKey
    created: str
    tls: ClientTLSSettings
    targets: tuple[PolicyTarget, ...]
    resolved: Fault | None = None
    accepted: Fault | None = None


def is_ignored(annotations: dict[str, str]) -> bool:
    """Return True if an annotation disables a policy."""
    return annotations.get(IGNORED, "").lower() == "true"


@derived
def backend_tls_policy(db: Mesh, key: ObjectKey) -> ConvertedBackendTLS | None:
    """Return a converted policy, or None if it does not exist or its annotation disables it."""
    row = BACKEND_TLS_POLICY.get(db, key)
    if row is None or is_ignored(dict(row.annotations)):
        return None
    validation = row.spec.validation
    roots, names = find_roots(db, validation, row.namespace), subject_names(validation)
    tls = ClientTLSSettings(
        mode="SIMPLE", sni=validation.hostname, subject_alt_names=names, credential_name=roots.credential
    )
    targets = tuple(_target(db, row, ref) for ref in row.spec.target_refs)
    return ConvertedBackendTLS(key, row.created, tls, targets, roots.resolved, roots.accepted)


# -- targets -----------------------------------------------------------------------------------------------------------


class BackendTarget(NamedTuple):
    """An object that a policy may target: its hosts, and a mapping from port names to port numbers."""

    hosts: tuple[str, ...]
    ports: dict[str, int]


def find_target(db: Mesh, kind: GroupKind, namespace: str, name: str) -> BackendTarget | Fault:
    """Return a Service or ServiceEntry as a policy target, or a fault if it does not exist. Not memoised."""
    if kind == SERVICE.id:
        service = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, namespace, name))
        if service is not None:
            return BackendTarget(
                (f"{name}.{namespace}.svc.{db.settings.registry.domain}",),
                {port.name: port.port for port in service.spec.ports},
            )
    elif kind == SERVICE_ENTRY.id:
        entry = SERVICE_ENTRY.get(db, ObjectKey(namespace, name))
        if entry is not None:
            return BackendTarget(entry.spec.hosts, {port.name: port.number for port in entry.spec.ports})
    else:
        return Fault("TargetNotFound", f"targetRefs invalid: unsupported kind {kind.name}")
    return Fault("TargetNotFound", f"targetRefs invalid: reference {namespace}/{name} (of kind {kind.name}) not found")


def _target(db: Mesh, policy: Object[BackendTLSPolicy], ref: LocalPolicyTargetReference) -> PolicyTarget:
    kind = GroupKind(ref.group, ref.kind)
    target = find_target(db, kind, policy.namespace, ref.name)
    if isinstance(target, Fault):
        return PolicyTarget(ref, fault=target)
    if ref.section_name and ref.section_name not in target.ports:
        message = (
            f'targetRefs invalid: sectionName "{ref.section_name}" does not exist '
            f"in {kind.name} {policy.namespace}/{ref.name}"
        )
        return PolicyTarget(ref, fault=Fault("TargetNotFound", message))
    older = _older(db, policy, kind, ref)
    if older:
        return PolicyTarget(
            ref, fault=Fault("Conflicted", f'Conflicts with BackendTLSPolicy "{older}" targeting the same backend')
        )
    return PolicyTarget(ref, target.hosts, target.ports[ref.section_name] if ref.section_name else 0)


def _older(db: Mesh, policy: Object[BackendTLSPolicy], kind: GroupKind, ref: LocalPolicyTargetReference) -> str:
    """Return the name of an older policy for the same target, or "" if there is none."""
    for key in BACKEND_TLS_POLICY.keys(db, "target", (policy.namespace, kind, ref.name)):
        other = BACKEND_TLS_POLICY.get(db, key)
        if (
            other is None
            or key == policy.key
            or is_ignored(dict(other.annotations))
            or ref not in other.spec.target_refs
        ):
            continue
        if (other.created, other.name) < (policy.created, policy.name):
            return other.name
    return ""


# -- XBackendTrafficPolicies -------------------------------------------------------------------------------------------


_BUDGET_INTERVAL, _MIN_RETRY_CONCURRENCY = Duration.of(10), 10


def retry_budget(constraint: RetryConstraint) -> RetryBudget:
    """Return the retry budget. Unset fields have the defaults of the Gateway API."""
    rate = constraint.min_retry_rate
    return RetryBudget(
        percent=float(constraint.budget.percent) if constraint.budget.percent is not None else None,
        budget_interval=constraint.budget.interval or _BUDGET_INTERVAL,
        min_retry_concurrency=rate.count if rate is not None and rate.count is not None else _MIN_RETRY_CONCURRENCY,
    )


@derived
def traffic_policy_targets(db: Mesh, key: ObjectKey) -> tuple[PolicyTarget, ...]:
    """Return the targets of a policy, or () if alpha kinds are disabled or an annotation disables the policy."""
    row = BACKEND_TRAFFIC_POLICY.get(db, key)
    if row is None or not db.settings.gateway_api.alpha or is_ignored(dict(row.annotations)):
        return ()
    return tuple(_traffic_policy_target(db, key.namespace, ref) for ref in row.spec.target_refs)


def _traffic_policy_target(db: Mesh, namespace: str, ref: LocalPolicyTargetReference) -> PolicyTarget:
    kind = GroupKind(ref.group, ref.kind)
    if kind != SERVICE.id:
        return PolicyTarget(
            ref, fault=Fault("TargetNotFound", f"targetRefs invalid: unsupported reference kind: {ref.kind}")
        )
    target = find_target(db, kind, namespace, ref.name)
    return PolicyTarget(ref, fault=target) if isinstance(target, Fault) else PolicyTarget(ref, target.hosts)
