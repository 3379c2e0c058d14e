"""The DestinationRule that applies to a client's traffic to a service.

The rule is looked up in the client's namespace, then in the service's namespace, and then in the root namespace. In
each namespace, the most specific host takes precedence, and rules for the same host are merged.
https://istio.io/latest/docs/ops/best-practices/traffic-management/#cross-namespace-configuration

A merged rule is identified by the tuple of the objects that it is merged from, oldest first, or () if there are none.
With this small hashable value (`merged_rule_key`), clients in many namespaces can share clusters. `merged_rule` builds
the rule from it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import DestinationRule, PortTrafficPolicy, Subset, TrafficPolicy
from pilot.config.object import Object, ObjectKey, age
from pilot.config.validation.expansion import MAX_WILDCARD_SUBSETS
from pilot.derive import Gather, derived, hub
from pilot.lib.hosts import full_name, is_wildcard, matches, most_specific
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.traffic.rule_pools import PooledRule, Pools, RuleDefaults, RuleEntry, build_pools

MAX_SUBSET_CLUSTERS = 4096
"""Maximum number of clusters for the subsets of a service. There is one for each port and subset.

Large services have about 10 ports and 50 subsets.
"""

Policy = TypeVar("Policy", TrafficPolicy, PortTrafficPolicy)
MergedRuleKey = tuple[ObjectKey, ...]
NO_RULES: tuple[RuleEntry, ...] = ()
EVERYBODY: tuple[str, Labels] = ("", frozenset())
"""Namespace and labels that represent the clients in all namespaces that have no rules of their own for a host."""


class MergedRule(msgspec.Struct, frozen=True, dict=True):
    """The result of merging the rules for a host. It has the name of the first rule."""

    spec: DestinationRule
    sources: MergedRuleKey

    @property
    def key(self) -> ObjectKey:
        return self.sources[0]

    def subset(self, name: str) -> Subset | None:
        """Return the subset with a name, or None if there is none."""
        return self._subsets.get(name)

    @functools.cached_property
    def _subsets(self) -> Mapping[str, Subset]:
        return {subset.name: subset for subset in reversed(self.spec.subsets)}

    @property
    def is_wildcard(self) -> bool:
        """Return whether the rule applies to all services that its host matches."""
        return is_wildcard(self.spec.host)

    @functools.cached_property
    def has_credentials(self) -> bool:
        """Return whether a traffic policy refers to a TLS credential by name."""
        return any(policy.tls is not None and policy.tls.credential_name for policy in self.spec.policies)

    def subset_names(self, ports: int) -> tuple[str, ...]:
        """Return the names of the subsets, at most `MAX_SUBSET_CLUSTERS` for all ports of a service together, and at
        most `MAX_WILDCARD_SUBSETS` for a wildcard host."""
        names = dict.fromkeys(s.name for s in self.spec.subsets)
        largest = MAX_SUBSET_CLUSTERS // max(ports, 1)
        return tuple(itertools.islice(names, min(largest, MAX_WILDCARD_SUBSETS) if self.is_wildcard else largest))


@hub
def rule_defaults(db: Mesh) -> RuleDefaults:
    """Return the settings that determine the reach of rules."""
    mesh = mesh_config(db)
    return RuleDefaults(
        mesh.root_namespace, "." in mesh.default_destination_rule_export_to, db.settings.registry.merge_rules_by_export
    )


@derived
def host_pools(db: Mesh, host: str) -> Mapping[str, Pools]:
    """Return the rules for exactly this host, keyed by namespace."""
    rules: dict[str, list[Object[DestinationRule]]] = {}
    for key in DESTINATION_RULE.keys(db, "host", host.lower()):
        row = DESTINATION_RULE.get(db, key)
        if row is not None and full_name(row.spec.host, key.namespace, db.settings.registry.domain) == host:
            rules.setdefault(key.namespace, []).append(row)
    return {namespace: _pools(db, namespace, rows) for namespace, rows in rules.items()}


@derived
def wildcard_pools(db: Mesh, namespace: str) -> Mapping[str, Pools]:
    """Return the rules for wildcard hosts in a namespace, keyed by host."""
    rules: dict[str, list[Object[DestinationRule]]] = {}
    for key in DESTINATION_RULE.keys(db, "wildcard", namespace):
        row = DESTINATION_RULE.get(db, key)
        if row is not None:
            rules.setdefault(row.spec.host, []).append(row)
    return {host: _pools(db, namespace, rows) for host, rows in rules.items()}


def _pools(db: Mesh, namespace: str, rows: Iterable[Object[DestinationRule]]) -> Pools:
    rules = [PooledRule(o.key, frozenset(o.spec.export_to), _selector(o.spec)) for o in sorted(rows, key=_precedence)]
    return build_pools(rules, namespace, rule_defaults(db))


def _precedence(o: Object[DestinationRule]) -> Any:
    """Return the key by which rules are sorted. Rules with a selector are first, and older rules precede newer ones."""
    return o.spec.workload_selector is None, age(o)


def _selector(spec: DestinationRule) -> Labels | None:
    return frozenset(spec.workload_selector.match_labels.items()) if spec.workload_selector is not None else None


def _find(db: Mesh, namespace: str, host: str, pool: str) -> tuple[RuleEntry, ...]:
    """Return the rule entries for the most specific host in one pool of a namespace."""
    # Most hosts have no rules, and a node for each host would waste memory.
    exact = host_pools(db, host).get(namespace) if DESTINATION_RULE.keys(db, "host", host.lower()) else None
    if exact is not None and (entries := exact.pool(pool)):
        return entries
    wildcards = wildcard_pools(db, namespace)
    if not wildcards:
        return NO_RULES
    candidates = [h for h, pools in wildcards.items() if pools.pool(pool)]
    best = most_specific(host, candidates)
    return wildcards[best].pool(pool) if best is not None else NO_RULES


def _choices(db: Mesh, namespace: str, ref: ServiceRef) -> tuple[RuleEntry, ...]:
    """Return the rule entries for a service. A proxy in the namespace uses one of them, depending on its labels."""
    root = rule_defaults(db).root_namespace
    # Rules in the root namespace are usually meant for other namespaces, so the proxies in it use them last, unless
    # the rules are private.
    own = _find(db, namespace, ref.hostname, "local" if namespace != root else "private")
    if own:
        return own
    for owner in dict.fromkeys((ref.namespace, root)):
        visible = tuple(e for e in _find(db, owner, ref.hostname, "exported") if e.visible_in(namespace))
        if visible:
            return visible
    return NO_RULES


@derived
def defined_subsets(db: Mesh, namespace: str, ref: ServiceRef) -> frozenset[str]:
    """Return the names of a service's subsets that are visible in a namespace, regardless of the labels of proxies."""
    merged = (merged_rule(db, entry.sources) for entry in _choices(db, namespace, ref))
    return frozenset(subset.name for rule in merged if rule is not None for subset in rule.spec.subsets)


@derived
def older_sources(db: Mesh, key: ObjectKey, host: str) -> MergedRuleKey:
    """Return the rules for the same host and namespace that precede a rule when they are merged."""
    pools = (wildcard_pools(db, key.namespace) if is_wildcard(host) else host_pools(db, host)).get(
        host if is_wildcard(host) else key.namespace
    )
    entries = (entry for entry in (pools.local if pools is not None else ()) if key in entry.sources)
    return next((entry.sources[: entry.sources.index(key)] for entry in entries), ())


@derived
def is_merged(db: Mesh, key: ObjectKey, host: str) -> bool:
    """Return whether a rule is one of those that are merged for its host."""
    pools = (wildcard_pools(db, key.namespace) if is_wildcard(host) else host_pools(db, host)).get(
        host if is_wildcard(host) else key.namespace
    )
    return pools is None or any(key in entry.sources for pool in (pools.local, pools.exported) for entry in pool)


class RuledHosts(NamedTuple):
    """The hosts of DestinationRules, in lower case."""

    exact: frozenset[str]
    wildcards: tuple[str, ...]

    def has(self, host: str) -> bool:
        """Return whether the host of a rule matches the given host."""
        lower = host.lower()
        if not self.wildcards:  # the usual case, for each host of a large mesh
            return lower in self.exact
        return lower in self.exact or any(matches(wildcard, lower) for wildcard in self.wildcards)


@derived
def _rules_of_clients(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Return the rules in a namespace, and those that are exported to it by name."""
    return tuple(
        dict.fromkeys(
            (*DESTINATION_RULE.keys(db, "namespace", namespace), *DESTINATION_RULE.keys(db, "exported", namespace))
        )
    )


@derived
def _host_of_rule(db: Mesh, key: ObjectKey) -> str | None:
    row = DESTINATION_RULE.get(db, key)
    return full_name(row.spec.host, key.namespace, db.settings.registry.domain).lower() if row is not None else None


_hosts_of_rules: Gather[ObjectKey, [str], str] = Gather(
    "hosts of rules", _rules_of_clients, _host_of_rule, passed=lambda key, namespace: ()
)


@derived
def ruled_hosts(db: Mesh, namespace: str) -> RuledHosts:
    """Return the hosts for which clients in a namespace may have different rules from clients in other namespaces.

    These are the hosts of the rules in the namespace, and of the rules that are exported to it by name.
    """
    hosts = set(_hosts_of_rules(db, namespace).values())
    return RuledHosts(
        frozenset(h for h in hosts if not is_wildcard(h)), tuple(sorted(h for h in hosts if is_wildcard(h)))
    )


def merged_rule_key(db: Mesh, namespace: str, ref: ServiceRef, labels: Labels) -> MergedRuleKey:
    """Return the rules for a service that apply to a proxy with this namespace and labels, or () if there are none. Not
    memoised."""
    return visible_rule_key(
        db, *((namespace, labels) if ruled_hosts(db, namespace).has(ref.hostname) else EVERYBODY), ref
    )


@derived
def visible_rule_key(db: Mesh, namespace: str, labels: Labels, ref: ServiceRef) -> MergedRuleKey:
    """Return the result of `merged_rule_key`.

    If no rule in `ruled_hosts` of the namespace matches the service, `namespace` and `labels` are EVERYBODY, so that
    proxies in many namespaces share the result.
    """
    catch_all: MergedRuleKey = ()
    for entry in _choices(db, namespace, ref):
        if entry.selector is None:
            catch_all = entry.sources
        elif entry.sources[0].namespace == namespace and entry.selector <= labels:
            return entry.sources
    return catch_all


@derived
def inbound_merged_rule_key(db: Mesh, namespace: str, ref: ServiceRef) -> MergedRuleKey:
    """Return the rules that apply to a service's inbound traffic. Rules with a workload selector are ignored."""
    catch_all: MergedRuleKey = ()
    for entry in _choices(db, namespace, ref):
        if entry.selector is None:
            catch_all = entry.sources
    return catch_all


@derived
def merged_rule(db: Mesh, sources: MergedRuleKey) -> MergedRule | None:
    """Return the result of merging rules: all their subsets, and the oldest traffic policy. Return None if a rule does
    not exist."""
    rows = [row for key in sources if (row := DESTINATION_RULE.get(db, key)) is not None]
    if len(rows) != len(sources) or not rows:
        return None
    merged = merge_rules([row.spec for row in rows])
    configured = merge_policies(row.spec.traffic_policy for row in rows if row.origin is None)
    converted = merge_policies(row.spec.traffic_policy for row in rows if row.origin is not None)
    if configured is not None and converted is not None:
        merged = msgspec.structs.replace(merged, traffic_policy=overlay(configured, converted))
    return MergedRule(merged, sources)


def merge_policies(policies: Iterable[TrafficPolicy | None]) -> TrafficPolicy | None:
    """Return the first policy that is set."""
    return next((policy for policy in policies if policy is not None), None)


def overlay(configured: TrafficPolicy, converted: TrafficPolicy) -> TrafficPolicy:
    """Return a user's policy, with its unset fields taken from a policy that was converted from another kind.

    The same applies to the settings for each port.
    """
    ports = {p.port.number if p.port is not None else 0: p for p in converted.port_level_settings}
    for one in configured.port_level_settings:
        number = one.port.number if one.port is not None else 0
        ports[number] = _fill(one, ports[number]) if number in ports else one
    return msgspec.structs.replace(
        _fill(configured, converted), port_level_settings=tuple(ports[n] for n in sorted(ports))
    )


def _fill(policy: Policy, defaults: Policy) -> Policy:
    """Return a policy whose unset fields are taken from `defaults`."""
    unset = (name for name in policy.__struct_fields__ if getattr(policy, name) is None)
    return msgspec.structs.replace(policy, **{name: getattr(defaults, name) for name in unset})


def merge_rules(specs: list[DestinationRule]) -> DestinationRule:
    """Return the result of merging rules. The first subset with a name and the first traffic policy take precedence."""
    first, *others = specs
    if not others:
        return first
    subsets, policy = list(first.subsets), first.traffic_policy
    names = {s.name for s in subsets}
    for spec in others:
        subsets += [s for s in spec.subsets if s.name not in names]
        names.update(s.name for s in spec.subsets)
        policy = policy if policy is not None else spec.traffic_policy
    return msgspec.structs.replace(first, subsets=tuple(subsets), traffic_policy=policy)


def destination_rule(db: Mesh, scope: ScopeFacet, ref: ServiceRef, labels: Labels) -> MergedRule | None:
    """Return the rule that applies to a proxy's traffic to a service, or None if there is none. Not memoised."""
    sources = merged_rule_key(db, scope.namespace, ref, labels)
    return merged_rule(db, sources) if sources else None
