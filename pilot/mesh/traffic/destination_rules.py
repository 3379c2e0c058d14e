"""The DestinationRule that a client's traffic to a service follows.

It is looked for in the client's namespace, then the service's, then the root namespace; in each the most specific host counts, and the
rules of one host are merged. https://istio.io/latest/docs/ops/best-practices/traffic-management/#cross-namespace-configuration

A rule is handed on as the tuple of the objects that it is merged from, oldest first, () for none: a small hashable value by which
clusters of many namespaces are shared (`merged_rule_key`), and from which `merged_rule` makes the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.networking.destination_rule import DestinationRule, PortTrafficPolicy, Subset, TrafficPolicy
from pilot.config.object import Object, ObjectKey, age
from pilot.derive import Gather, derived, hub
from pilot.lib.hosts import full_name, is_wildcard, matches, most_specific
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.traffic.rule_pools import PooledRule, Pools, RuleDefaults, RuleEntry, build_pools

Policy = TypeVar("Policy", TrafficPolicy, PortTrafficPolicy)
MergedRuleKey = tuple[ObjectKey, ...]
NO_RULES: tuple[RuleEntry, ...] = ()
EVERYBODY: tuple[str, Labels] = ("", frozenset())
"""The namespace and labels that stand for the clients of all namespaces without rules of their own for a host."""


class MergedRule(msgspec.Struct, frozen=True):
    """The rules of one host as one. It goes by the name of the first."""

    spec: DestinationRule
    sources: MergedRuleKey

    @property
    def key(self) -> ObjectKey:
        return self.sources[0]

    def subset(self, name: str) -> Subset | None:
        """Returns the subset of that name."""
        return next((s for s in self.spec.subsets if s.name == name), None)


@hub
def rule_defaults(db: Mesh) -> RuleDefaults:
    """Returns what the mesh config and the settings say about the reach of rules."""
    mesh = mesh_config(db)
    return RuleDefaults(
        mesh.root_namespace, "." in mesh.default_destination_rule_export_to, db.settings.registry.merge_rules_by_export
    )


@derived
def host_pools(db: Mesh, host: str) -> Mapping[str, Pools]:
    """Returns the rules written for exactly that host, by their namespace."""
    rules: dict[str, list[Object[DestinationRule]]] = {}
    for key in DESTINATION_RULE.keys(db, "host", host.lower()):
        row = DESTINATION_RULE.get(db, key)
        if row is not None and full_name(row.spec.host, key.namespace, db.settings.registry.domain) == host:
            rules.setdefault(key.namespace, []).append(row)
    return {namespace: _pools(db, namespace, found) for namespace, found in rules.items()}


@derived
def wildcard_pools(db: Mesh, namespace: str) -> Mapping[str, Pools]:
    """Returns the rules of a namespace for wildcard hosts, by host."""
    rules: dict[str, list[Object[DestinationRule]]] = {}
    for key in DESTINATION_RULE.keys(db, "wildcard", namespace):
        row = DESTINATION_RULE.get(db, key)
        if row is not None:
            rules.setdefault(row.spec.host, []).append(row)
    return {host: _pools(db, namespace, found) for host, found in rules.items()}


def _pools(db: Mesh, namespace: str, found: Iterable[Object[DestinationRule]]) -> Pools:
    rules = [PooledRule(o.key, frozenset(o.spec.export_to), _selector(o.spec)) for o in sorted(found, key=_precedence)]
    return build_pools(rules, namespace, rule_defaults(db))


def _precedence(o: Object[DestinationRule]) -> Any:
    """Returns the sort key of rules: those with a selector first, then by age."""
    return o.spec.workload_selector is None, age(o)


def _selector(spec: DestinationRule) -> Labels | None:
    return frozenset(spec.workload_selector.match_labels.items()) if spec.workload_selector is not None else None


def _find(db: Mesh, namespace: str, host: str, pool: str) -> tuple[RuleEntry, ...]:
    """Returns the entries of the most specific host in one pool of a namespace."""
    # Most hosts have no rule of their own, and then need no node to say so.
    exact = host_pools(db, host).get(namespace) if DESTINATION_RULE.keys(db, "host", host.lower()) else None
    if exact is not None and (found := exact.pool(pool)):
        return found
    wildcards = wildcard_pools(db, namespace)
    if not wildcards:
        return NO_RULES
    filled = [h for h, pools in wildcards.items() if pools.pool(pool)]
    best = most_specific(host, filled)
    return wildcards[best].pool(pool) if best is not None else NO_RULES


def _choices(db: Mesh, namespace: str, ref: ServiceRef) -> tuple[RuleEntry, ...]:
    """Returns the entries among which a proxy of a namespace chooses, for one service."""
    root = rule_defaults(db).root_namespace
    # Rules of the root namespace are often meant for everybody else: its own proxies look there last, except for private ones.
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
    """Returns the names of the subsets that a proxy of a namespace may know of a service, whatever its labels are."""
    merged = (merged_rule(db, entry.sources) for entry in _choices(db, namespace, ref))
    return frozenset(subset.name for rule in merged if rule is not None for subset in rule.spec.subsets)


@derived
def older_sources(db: Mesh, key: ObjectKey, host: str) -> MergedRuleKey:
    """Returns the rules that come before one where it is merged with others of its host and namespace."""
    pools = (wildcard_pools(db, key.namespace) if is_wildcard(host) else host_pools(db, host)).get(
        host if is_wildcard(host) else key.namespace
    )
    entries = (entry for entry in (pools.local if pools is not None else ()) if key in entry.sources)
    return next((entry.sources[: entry.sources.index(key)] for entry in entries), ())


class RuledHosts(NamedTuple):
    """Hosts as rules name them, in lower case: `exact` ones, and `wildcards`."""

    exact: frozenset[str]
    wildcards: tuple[str, ...]

    def has(self, host: str) -> bool:
        """Returns whether a host is named."""
        lower = host.lower()
        return lower in self.exact or any(matches(wildcard, lower) for wildcard in self.wildcards)


@derived
def _rules_of_clients(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Returns the rules in a namespace, and those that are exported to it by name."""
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
    "hosts of rules", _rules_of_clients, _host_of_rule, passed=lambda namespace: ()
)


@derived
def ruled_hosts(db: Mesh, namespace: str) -> RuledHosts:
    """Returns the hosts for which clients of a namespace may follow other rules than clients elsewhere: those of the rules in it, and of the
    rules that are exported to it by name."""
    hosts = set(_hosts_of_rules(db, namespace).values())
    return RuledHosts(
        frozenset(h for h in hosts if not is_wildcard(h)), tuple(sorted(h for h in hosts if is_wildcard(h)))
    )


def merged_rule_key(db: Mesh, namespace: str, ref: ServiceRef, labels: Labels) -> MergedRuleKey:
    """Returns the rules that make the rule which a proxy of that namespace with those labels follows for one service; () for none. No node of
    its own."""
    return merged_rule_seen(
        db, *((namespace, labels) if ruled_hosts(db, namespace).has(ref.hostname) else EVERYBODY), ref
    )


@derived
def merged_rule_seen(db: Mesh, namespace: str, labels: Labels, ref: ServiceRef) -> MergedRuleKey:
    """Returns the same as `merged_rule_key`; `namespace` and `labels` are EVERYBODY where the namespace has no `ruled_hosts` that are the
    service's, so that proxies of many namespaces share it."""
    catch_all: MergedRuleKey = ()
    for entry in _choices(db, namespace, ref):
        if entry.selector is None:
            catch_all = entry.sources
        elif entry.sources[0].namespace == namespace and entry.selector <= labels:
            return entry.sources
    return catch_all


@derived
def inbound_merged_rule_key(db: Mesh, namespace: str, ref: ServiceRef) -> MergedRuleKey:
    """Returns the same as `merged_rule_key` for the side that serves, where rules with a workload selector do not count."""
    catch_all: MergedRuleKey = ()
    for entry in _choices(db, namespace, ref):
        if entry.selector is None:
            catch_all = entry.sources
    return catch_all


@derived
def merged_rule(db: Mesh, sources: MergedRuleKey) -> MergedRule | None:
    """Returns the rules of one host as one: the subsets of all, the oldest traffic policy."""
    rows = [row for key in sources if (row := DESTINATION_RULE.get(db, key)) is not None]
    if len(rows) != len(sources) or not rows:
        return None
    merged = merge_rules([row.spec for row in rows])
    written = merge_policies(row.spec.traffic_policy for row in rows if row.origin is None)
    derived_ones = merge_policies(row.spec.traffic_policy for row in rows if row.origin is not None)
    if written is not None and derived_ones is not None:
        merged = msgspec.structs.replace(merged, traffic_policy=lay_over(written, derived_ones))
    return MergedRule(merged, sources)


def merge_policies(policies: Iterable[TrafficPolicy | None]) -> TrafficPolicy | None:
    """Returns the first policy that there is."""
    return next((policy for policy in policies if policy is not None), None)


def lay_over(written: TrafficPolicy, below: TrafficPolicy) -> TrafficPolicy:
    """Returns what a user wrote, with what it does not say of a policy that follows from other objects; of a port likewise."""
    ports = {p.port.number if p.port is not None else 0: p for p in below.port_level_settings}
    for one in written.port_level_settings:
        number = one.port.number if one.port is not None else 0
        ports[number] = _filled(one, ports[number]) if number in ports else one
    return msgspec.structs.replace(_filled(written, below), port_level_settings=tuple(ports[n] for n in sorted(ports)))


def _filled(written: Policy, below: Policy) -> Policy:
    """Returns a policy with the fields of another one where it has none."""
    absent = (name for name in written.__struct_fields__ if getattr(written, name) is None)
    return msgspec.structs.replace(written, **{name: getattr(below, name) for name in absent})


def merge_rules(specs: list[DestinationRule]) -> DestinationRule:
    """Returns the rules of one host as one: a subset whose name is taken is dropped, and a later policy counts only where no earlier rule has any."""
    first, *others = specs
    if not others:
        return first
    subsets, policy = list(first.subsets), first.traffic_policy
    for spec in others:
        taken = {s.name for s in subsets}
        subsets += [s for s in spec.subsets if s.name not in taken]
        policy = policy if policy is not None else spec.traffic_policy
    return msgspec.structs.replace(first, subsets=tuple(subsets), traffic_policy=policy)


def destination_rule(db: Mesh, scope: ScopeFacet, ref: ServiceRef, labels: Labels) -> MergedRule | None:
    """Returns the rule that a proxy's traffic to a service follows."""
    sources = merged_rule_key(db, scope.namespace, ref, labels)
    return merged_rule(db, sources) if sources else None
