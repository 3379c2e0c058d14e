"""DestinationRules that are converted from backend policies and XBackends.

There is one for each host of a target. It merges all policies for the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import BACKEND, BACKEND_TLS_POLICY, BACKEND_TRAFFIC_POLICY
from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.destination_rule import (
    ClientTLSSettings,
    DestinationRule,
    LoadBalancerSettings,
    PortTrafficPolicy,
    RetryBudget,
    TrafficPolicy,
)
from pilot.config.networking.virtual_service import PortSelector
from pilot.config.object import Object, ObjectKey, Origin
from pilot.config.problem import ObjectRef
from pilot.derive import Gather, derived, hub
from pilot.mesh.gateway_api.generated_names import policy_rule
from pilot.mesh.lowering.gateway_api.backend_policies import backend_tls_policy, retry_budget, traffic_policy_targets
from pilot.mesh.lowering.gateway_api.external_backends import backend_keys, external_backend
from pilot.mesh.tables.database import Mesh


class PolicyFields(NamedTuple):
    """The settings of one policy for a host of a target. They apply to `port`, or to all ports if it is 0."""

    age: tuple[str, str, str]
    rule: ObjectKey
    host: str
    source: ObjectRef
    port: int
    tls: ClientTLSSettings | None = None
    budget: RetryBudget | None = None
    balances: bool = False


@derived
def _tls_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return BACKEND_TLS_POLICY.all_keys(db)


@derived
def _traffic_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return BACKEND_TRAFFIC_POLICY.all_keys(db)


@derived
def _tls_settings(db: Mesh, key: ObjectKey) -> tuple[PolicyFields, ...] | None:
    policy = backend_tls_policy(db, key)
    if policy is None:
        return None
    source, age = ObjectRef(BACKEND_TLS_POLICY.id, *key), (policy.created, *key)
    return tuple(
        PolicyFields(
            age,
            _rule_key(key.namespace, GroupKind(target.ref.group, target.ref.kind), target.ref.name, host),
            host,
            source,
            target.port,
            tls=policy.tls,
        )
        for target in policy.targets
        for host in target.hosts
    )


@derived
def _traffic_settings(db: Mesh, key: ObjectKey) -> tuple[PolicyFields, ...] | None:
    row = BACKEND_TRAFFIC_POLICY.get(db, key)
    if row is None:
        return None
    source, age = ObjectRef(BACKEND_TRAFFIC_POLICY.id, *key), (row.created, *key)
    budget = retry_budget(row.spec.retry_constraint) if row.spec.retry_constraint is not None else None
    return tuple(
        PolicyFields(
            age,
            _rule_key(key.namespace, SERVICE.id, target.ref.name, host),
            host,
            source,
            0,
            budget=budget,
            balances=True,
        )
        for target in traffic_policy_targets(db, key)
        for host in target.hosts
    )


def _rule_key(namespace: str, kind: GroupKind, name: str, host: str) -> ObjectKey:
    return ObjectKey(namespace, policy_rule(name, "" if kind == SERVICE.id else host))


@derived
def _backend_settings(db: Mesh, key: ObjectKey) -> tuple[PolicyFields, ...] | None:
    external = external_backend(db, key)
    if external is None or external.tls is None:
        return None
    rule = _rule_key(key.namespace, BACKEND.id, key.name, external.host)
    return (
        PolicyFields(
            (external.created, *key), rule, external.host, ObjectRef(BACKEND.id, *key), external.port, tls=external.tls
        ),
    )


_tls_policies: Gather[ObjectKey, [], tuple[PolicyFields, ...]] = Gather("tls_policy_settings", _tls_keys, _tls_settings)
_traffic_policies: Gather[ObjectKey, [], tuple[PolicyFields, ...]] = Gather(
    "traffic_policy_settings", _traffic_keys, _traffic_settings
)

_backends: Gather[ObjectKey, [], tuple[PolicyFields, ...]] = Gather("backend_settings", backend_keys, _backend_settings)


@hub
def destination_rules_of_policies(db: Mesh) -> Mapping[ObjectKey, Object[DestinationRule]]:
    """Return the DestinationRules that all backend policies and XBackends are converted to."""
    by_rule: dict[ObjectKey, list[PolicyFields]] = {}
    for settings in (*_tls_policies(db).values(), *_traffic_policies(db).values(), *_backends(db).values()):
        for setting in settings:
            by_rule.setdefault(setting.rule, []).append(setting)
    return {
        key: build_destination_rule(key, sorted(settings, key=lambda setting: setting.age))
        for key, settings in by_rule.items()
    }


def build_destination_rule(key: ObjectKey, settings: Sequence[PolicyFields]) -> Object[DestinationRule]:
    """Return the DestinationRule for a host. If several policies set the same field, the oldest takes precedence."""
    ports: dict[int, ClientTLSSettings] = {}
    for setting in settings:
        if setting.tls is not None:
            ports.setdefault(setting.port, setting.tls)
    policy = TrafficPolicy(
        tls=ports.pop(0, None),
        load_balancer=LoadBalancerSettings() if any(setting.balances for setting in settings) else None,
        retry_budget=next((setting.budget for setting in settings if setting.budget is not None), None),
        port_level_settings=tuple(
            PortTrafficPolicy(port=PortSelector(number=number), tls=ports[number]) for number in sorted(ports)
        ),
    )
    sources = tuple(dict.fromkeys(setting.source for setting in settings))
    rule = DestinationRule(host=settings[0].host, traffic_policy=policy)
    return Object(
        DESTINATION_RULE.id, key.namespace, key.name, rule, origin=Origin(semantics="gateway", parents=sources)
    )
