"""Builds policies of connections, which ztunnels enforce.

What a policy asks for that only requests show, a ztunnel does not know. A rule that allows and asks for it allows nothing; one that denies
denies whatever meets the rest of it. So does a policy whose action is CUSTOM, for a ztunnel has nobody to ask.
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
    """Returns the message of an AuthorizationPolicy."""
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
    """Yields what has to hold for a rule. A list of which one part is met by everything a ztunnel sees is met by everything: it is left out, for in a
    match without any field ztunnels see one that never holds."""
    lists = (
        [_operation(to.operation or Operation()) for to in rule.to],
        [_source(one.source or Source(), namespace) for one in rule.from_],
        *([_condition(one)] for one in rule.when if one.key in CONNECTION_CONDITIONS),
    )
    for matches in lists:
        if matches and _NOTHING not in matches:
            yield pb.Rules(matches=matches)


def _operation(o: Operation) -> pb.Match:
    return pb.Match(destination_ports=_ports(o.ports), not_destination_ports=_ports(o.not_ports))


def _source(s: Source, namespace: str) -> pb.Match:
    return pb.Match(
        source_ips=_ranges(s.ip_blocks),
        not_source_ips=_ranges(s.not_ip_blocks),
        namespaces=_texts(s.namespaces),
        not_namespaces=_texts(s.not_namespaces),
        service_accounts=_accounts(s.service_accounts, namespace),
        not_service_accounts=_accounts(s.not_service_accounts, namespace),
        principals=_texts(s.principals),
        not_principals=_texts(s.not_principals),
    )


def _condition(c: Condition) -> pb.Match:
    if c.key == "destination.port":
        return pb.Match(destination_ports=_ports(c.values), not_destination_ports=_ports(c.not_values))
    if c.key == "destination.ip":
        return pb.Match(destination_ips=_ranges(c.values), not_destination_ips=_ranges(c.not_values))
    if c.key == "source.ip":
        return pb.Match(source_ips=_ranges(c.values), not_source_ips=_ranges(c.not_values))
    if c.key == "source.namespace":
        return pb.Match(namespaces=_texts(c.values), not_namespaces=_texts(c.not_values))
    return pb.Match(principals=_texts(c.values), not_principals=_texts(c.not_values))


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
    return [pb.ServiceAccountMatch(namespace=before or namespace, serviceAccount=name) for before, _, name in parts]


def _ports(values: Iterable[str]) -> list[int]:
    return [int(value) for value in values]


def _ranges(values: Iterable[str]) -> list[pb.Address]:
    found = (ipaddress.ip_interface(value) for value in values)
    return [pb.Address(address=one.ip.packed, length=one.network.prefixlen) for one in found]


# -- policies that follow from others --------------------------------------------------------------------------------------


def build_static_strict(root_namespace: str) -> pb.Authorization:
    """Returns the policy that workloads name which take mutual TLS alone."""
    return _strict(STATIC_STRICT, root_namespace, [[_NO_IDENTITY]])


def build_port_policy(p: PortPolicy) -> pb.Authorization:
    """Returns the policy that a PeerAuthentication with ports becomes."""
    if not p.strict:
        groups = [[pb.Match(not_principals=_NO_IDENTITY.not_principals, destination_ports=[port])] for port in p.ports]
        return _strict(CONVERTED + p.key.name, p.key.namespace, groups)
    others = [pb.Match(not_destination_ports=[port]) for port in p.ports]
    clauses = [_NO_IDENTITY, *others] if p.first else [*others, _NO_IDENTITY]
    return _strict(CONVERTED + p.key.name, p.key.namespace, [clauses])


def build_waypoint_policy(name: str, namespace: str, principals: Iterable[str]) -> pb.Authorization:
    """Returns the policy that lets the proxies of a waypoint in."""
    match = pb.Match(principals=[pb.StringMatch(exact=one) for one in principals])
    return pb.Authorization(
        name=name,
        namespace=namespace,
        scope=pb.WORKLOAD_SELECTOR,
        action=pb.ALLOW,
        groups=[pb.Group(rules=[pb.Rules(matches=[match])])],
    )


def _strict(name: str, namespace: str, groups: Iterable[Iterable[pb.Match]]) -> pb.Authorization:
    made = [pb.Group(rules=[pb.Rules(matches=[match]) for match in matches]) for matches in groups]
    return pb.Authorization(name=name, namespace=namespace, scope=pb.WORKLOAD_SELECTOR, action=pb.DENY, groups=made)
