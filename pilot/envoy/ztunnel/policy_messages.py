"""Builds the L4 policies that ztunnels enforce.

A ztunnel does not know the attributes of HTTP requests. An ALLOW rule that requires one is omitted, and a DENY rule
denies everything that matches its remaining conditions. CUSTOM policies are treated as DENY policies, because a ztunnel
cannot call an authorizer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from pilot.config.object import Object
from pilot.config.security.authorization_policy import AuthorizationPolicy, Condition, Operation, Rule, Source, dry_run
from pilot.mesh.ambient.policies import CONVERTED, STATIC_STRICT, PortPolicy, is_selective
from pilot.mesh.model.request_only_fields import CONNECTION_CONDITIONS, request_only_fields
from protos.istio import authorization_pb2 as pb

_NO_IDENTITY = pb.Match(not_principals=[pb.StringMatch(presence={})])
_NOTHING = pb.Match()


def build_authorization(row: Object[AuthorizationPolicy], root_namespace: str) -> pb.Authorization:
    """Return the message for an AuthorizationPolicy."""
    scope = (
        pb.WORKLOAD_SELECTOR if is_selective(row) else pb.GLOBAL if row.namespace == root_namespace else pb.NAMESPACE
    )
    allows = row.spec.action == "ALLOW"
    return pb.Authorization(
        name=row.name,
        namespace=row.namespace,
        scope=scope,
        action=pb.ALLOW if allows else pb.DENY,
        groups=[
            pb.Group(rules=_clauses(rule, row.namespace))
            for rule in row.spec.rules
            if not (allows and any(request_only_fields(rule)))
        ],
        dry_run=bool(dry_run(row.annotations)),
    )


def _clauses(rule: Rule, namespace: str) -> Iterator[pb.Rules]:
    """Yield the clauses of a rule, all of which must match.

    If one match of a clause is empty, the clause is always true and is omitted, because ztunnels treat an empty match
    as never true.
    """
    lists = (
        [_operation(to.operation or Operation()) for to in rule.to],
        [_source(item.source or Source(), namespace) for item in rule.from_],
        *([_condition(item)] for item in rule.when if item.key in CONNECTION_CONDITIONS),
    )
    for matches in lists:
        if matches and _NOTHING not in matches:
            yield pb.Rules(matches=matches)


def _operation(operation: Operation) -> pb.Match:
    return pb.Match(destination_ports=_ports(operation.ports), not_destination_ports=_ports(operation.not_ports))


def _source(source: Source, namespace: str) -> pb.Match:
    return pb.Match(
        source_ips=_ranges(source.ip_blocks),
        not_source_ips=_ranges(source.not_ip_blocks),
        namespaces=_texts(source.namespaces),
        not_namespaces=_texts(source.not_namespaces),
        service_accounts=_accounts(source.service_accounts, namespace),
        not_service_accounts=_accounts(source.not_service_accounts, namespace),
        principals=_texts(source.principals),
        not_principals=_texts(source.not_principals),
    )


def _condition(condition: Condition) -> pb.Match:
    if condition.key == "destination.port":
        return pb.Match(destination_ports=_ports(condition.values), not_destination_ports=_ports(condition.not_values))
    if condition.key == "destination.ip":
        return pb.Match(destination_ips=_ranges(condition.values), not_destination_ips=_ranges(condition.not_values))
    if condition.key == "source.ip":
        return pb.Match(source_ips=_ranges(condition.values), not_source_ips=_ranges(condition.not_values))
    if condition.key == "source.namespace":
        return pb.Match(namespaces=_texts(condition.values), not_namespaces=_texts(condition.not_values))
    return pb.Match(principals=_texts(condition.values), not_principals=_texts(condition.not_values))


def _texts(values: Iterable[str]) -> list[pb.StringMatch]:
    return [_text(value) for value in values]


def _text(value: str) -> pb.StringMatch:
    if value == "*":
        return pb.StringMatch(presence={})
    if value.startswith("*"):
        return pb.StringMatch(suffix=value[1:])
    return pb.StringMatch(prefix=value[:-1]) if value.endswith("*") else pb.StringMatch(exact=value)


def _accounts(values: Iterable[str], namespace: str) -> list[pb.ServiceAccountMatch]:
    parts = (value.rpartition("/") for value in values)
    return [
        pb.ServiceAccountMatch(namespace=account_namespace or namespace, serviceAccount=name)
        for account_namespace, _, name in parts
    ]


def _ports(values: Iterable[str]) -> list[int]:
    return [int(value) for value in values]


def _ranges(values: Iterable[str]) -> list[pb.Address]:
    interfaces = (ipaddress.ip_interface(value) for value in values)
    return [pb.Address(address=interface.ip.packed, length=interface.network.prefixlen) for interface in interfaces]


# -- derived policies --------------------------------------------------------------------------------------------------


def build_static_strict(root_namespace: str) -> pb.Authorization:
    """Return the policy that denies connections without mutual TLS, for workloads that require it."""
    return _strict(STATIC_STRICT, root_namespace, [[_NO_IDENTITY]])


def build_port_policy(policy: PortPolicy) -> pb.Authorization:
    """Return the policy for a PeerAuthentication with port-level settings."""
    if not policy.strict:
        groups = [
            [pb.Match(not_principals=_NO_IDENTITY.not_principals, destination_ports=[port])] for port in policy.ports
        ]
        return _strict(CONVERTED + policy.key.name, policy.key.namespace, groups)
    others = [pb.Match(not_destination_ports=[port]) for port in policy.ports]
    clauses = [_NO_IDENTITY, *others] if policy.first else [*others, _NO_IDENTITY]
    return _strict(CONVERTED + policy.key.name, policy.key.namespace, [clauses])


def build_waypoint_policy(name: str, namespace: str, principals: Iterable[str]) -> pb.Authorization:
    """Return the policy that allows connections from a waypoint's proxies."""
    match = pb.Match(principals=[pb.StringMatch(exact=principal) for principal in principals])
    return pb.Authorization(
        name=name,
        namespace=namespace,
        scope=pb.WORKLOAD_SELECTOR,
        action=pb.ALLOW,
        groups=[pb.Group(rules=[pb.Rules(matches=[match])])],
    )


def _strict(name: str, namespace: str, groups: Iterable[Iterable[pb.Match]]) -> pb.Authorization:
    rule_groups = [pb.Group(rules=[pb.Rules(matches=[match]) for match in matches]) for matches in groups]
    return pb.Authorization(
        name=name, namespace=namespace, scope=pb.WORKLOAD_SELECTOR, action=pb.DENY, groups=rule_groups
    )
