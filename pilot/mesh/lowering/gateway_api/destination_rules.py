"""The DestinationRules that policies of backends become: one for each host of a target, from all policies that are for it.
An XBackend is its own target."""

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
from pilot.mesh.gateway_api.names import policy_rule
from pilot.mesh.lowering.gateway_api.backend_tls import backend_tls_policy
from pilot.mesh.lowering.gateway_api.backend_traffic import retry_budget, traffic_policy_targets
from pilot.mesh.lowering.gateway_api.external_backends import backend_keys, external_backend
from pilot.mesh.tables.database import Mesh


class Said(NamedTuple):
    """What one policy says of a host of a target. `port`: of which alone, 0 for all."""

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
def _said_of_tls(db: Mesh, key: ObjectKey) -> tuple[Said, ...] | None:
    policy = backend_tls_policy(db, key)
    if policy is None:
        return None
    source, age = ObjectRef(BACKEND_TLS_POLICY.id, *key), (policy.created, *key)
    return tuple(
        Said(
            age,
            _rule_key(key.namespace, GroupKind(t.ref.group, t.ref.kind), t.ref.name, host),
            host,
            source,
            t.port,
            tls=policy.tls,
        )
        for t in policy.targets
        for host in t.hosts
    )


@derived
def _said_of_traffic(db: Mesh, key: ObjectKey) -> tuple[Said, ...] | None:
    row = BACKEND_TRAFFIC_POLICY.get(db, key)
    if row is None:
        return None
    source, age = ObjectRef(BACKEND_TRAFFIC_POLICY.id, *key), (row.created, *key)
    budget = retry_budget(row.spec.retry_constraint) if row.spec.retry_constraint is not None else None
    return tuple(
        Said(age, _rule_key(key.namespace, SERVICE.id, t.ref.name, host), host, source, 0, budget=budget, balances=True)
        for t in traffic_policy_targets(db, key)
        for host in t.hosts
    )


def _rule_key(namespace: str, kind: GroupKind, name: str, host: str) -> ObjectKey:
    return ObjectKey(namespace, policy_rule(name, "" if kind == SERVICE.id else host))


@derived
def _said_of_backend(db: Mesh, key: ObjectKey) -> tuple[Said, ...] | None:
    found = external_backend(db, key)
    if found is None or found.tls is None:
        return None
    rule = _rule_key(key.namespace, BACKEND.id, key.name, found.host)
    return (Said((found.created, *key), rule, found.host, ObjectRef(BACKEND.id, *key), found.port, tls=found.tls),)


_tls_policies: Gather[ObjectKey, [], tuple[Said, ...]] = Gather("said_by_tls_policies", _tls_keys, _said_of_tls)
_traffic_policies: Gather[ObjectKey, [], tuple[Said, ...]] = Gather(
    "said_by_traffic_policies", _traffic_keys, _said_of_traffic
)

_backends: Gather[ObjectKey, [], tuple[Said, ...]] = Gather("said_by_backends", backend_keys, _said_of_backend)


@hub
def rules_of_policies(db: Mesh) -> Mapping[ObjectKey, Object[DestinationRule]]:
    """Returns the DestinationRules of all policies of backends, and of XBackends."""
    found: dict[ObjectKey, list[Said]] = {}
    for said in (*_tls_policies(db).values(), *_traffic_policies(db).values(), *_backends(db).values()):
        for one in said:
            found.setdefault(one.rule, []).append(one)
    return {key: build_rule(key, sorted(said, key=lambda one: one.age)) for key, said in found.items()}


def build_rule(key: ObjectKey, said: Sequence[Said]) -> Object[DestinationRule]:
    """Returns the rule of a host; of policies that say the same thing the oldest counts."""
    ports: dict[int, ClientTLSSettings] = {}
    for one in said:
        if one.tls is not None:
            ports.setdefault(one.port, one.tls)
    policy = TrafficPolicy(
        tls=ports.pop(0, None),
        load_balancer=LoadBalancerSettings() if any(one.balances for one in said) else None,
        retry_budget=next((one.budget for one in said if one.budget is not None), None),
        port_level_settings=tuple(PortTrafficPolicy(port=PortSelector(number=n), tls=ports[n]) for n in sorted(ports)),
    )
    sources = tuple(dict.fromkeys(one.source for one in said))
    rule = DestinationRule(host=said[0].host, traffic_policy=policy)
    return Object(
        DESTINATION_RULE.id, key.namespace, key.name, rule, origin=Origin(semantics="gateway", parents=sources)
    )
