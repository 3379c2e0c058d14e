"""Lists the outbound clusters of a proxy: one for each port of each service that it sees, and one for each subset of that.

Keys are gathered by service, so that an edit of one rule lists the keys of one service again.
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import msgspec
from envoy.config.cluster.v3 import cluster_pb2

from pilot.derive import Gather, derived
from pilot.model.facets import Labels, OutboundFacet, ScopeFacet
from pilot.model.inputs import Mesh
from pilot.model.proxy import NodeType
from pilot.model.service import Port, Protocol, Service, ServiceRef
from pilot.model.views.destination_rules import MergedRuleKey, merged_rule, merged_rule_key
from pilot.model.views.gateway_destinations import routed_services
from pilot.model.views.imports import ImportKey, scope_services
from pilot.model.views.services import service
from pilot.translate import names
from pilot.translate.cluster.build import ClusterDestination, find_shape
from pilot.translate.cluster.defaults import cluster_defaults
from pilot.translate.cluster.resolution import INLINE, discovery_type, has_cluster, is_dynamic


class ClusterKey(NamedTuple):
    """Names a port of a service, or of a subset of it; `subset` is "" for the whole service."""

    ref: ServiceRef
    port: int
    subset: str = ""

    @property
    def name(self) -> str:
        """Returns the cluster's name."""
        return names.outbound_cluster(self.port, self.subset, self.ref.hostname)


class ClusterListKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what of a proxy decides which clusters it has: what it sees, and which rules are for it."""

    scope: ScopeFacet
    labels: Labels


class ServiceKeys(NamedTuple):
    """Holds the keys of one service. `inline`: its endpoints are part of its clusters, unless a rule passes through."""

    keys: tuple[ClusterKey, ...]
    inline: bool


@lru_cache(maxsize=4096)
def list_key(outbound: OutboundFacet) -> ClusterListKey:
    """Returns what of a proxy's outbound side decides on its keys."""
    return ClusterListKey(outbound.scope, outbound.labels)


def cluster_port(found: Service, number: int) -> Port | None:
    """Returns the port of a number that clusters are for: TCP, where UDP has the same number; None where there is none."""
    return next((p for p in found.ports if p.number == number and p.protocol is not Protocol.UDP), None)


@derived
def _imports(db: Mesh, by: ClusterListKey) -> tuple[ImportKey, ...]:
    if by.scope.routed is not None:
        return routed_services(db, msgspec.structs.replace(by.scope, routed=None), by.scope.routed)
    return tuple(scope_services(db, by.scope).values())


@derived
def _keys_of_service(db: Mesh, item: ImportKey, by: ClusterListKey) -> ServiceKeys | None:
    found = service(db, item.ref)
    if found is None:
        return None
    ports = dict.fromkeys(p.number for p in item.visible_ports(found) if has_cluster(found, p))
    if not ports:
        return None
    subsets: Iterable[str] = ()
    if not is_dynamic(found) and (rule_key := merged_rule_key(db, by.scope.namespace, item.ref, by.labels)):
        rule = merged_rule(db, rule_key)
        subsets = dict.fromkeys(s.name for s in rule.spec.subsets) if rule is not None else ()
    keys = tuple(ClusterKey(item.ref, port, subset) for port in ports for subset in ("", *subsets))
    return ServiceKeys(keys, discovery_type(found, router=False) in INLINE)


_keys_by_service: Gather[ImportKey, [ClusterListKey], ServiceKeys] = Gather("cluster keys of services", _imports, _keys_of_service)


@derived
def _listed(db: Mesh, by: ClusterListKey, inline: bool) -> tuple[ClusterKey, ...]:
    """Returns the keys of the services whose clusters hold their endpoints, or of those whose clusters do not."""
    return tuple(chain.from_iterable(s.keys for s in _keys_by_service(db, by).values() if s.inline is inline))


@derived
def cluster_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ClusterKey, ...]:
    """Returns the keys of all outbound clusters of a proxy, also of those that come to nothing for lack of endpoints."""
    by = list_key(outbound)
    return _listed(db, by, False) + _listed(db, by, True)


@derived
def placeless_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ClusterKey, ...]:
    """Returns the clusters that are the same wherever the proxy is: their endpoints come by EDS, or not at all."""
    return _listed(db, list_key(outbound), False)


@derived
def inline_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ClusterKey, ...]:
    """Returns the clusters that hold their endpoints, which are ordered by where the proxy is."""
    return _listed(db, list_key(outbound), True)


def find_destination(db: Mesh, key: ClusterKey, rule_key: MergedRuleKey, sni_routed: bool = False) -> ClusterDestination | None:
    """Returns what a key stands for under a rule; None where it no longer stands for anything."""
    found = service(db, key.ref)
    port = cluster_port(found, key.port) if found is not None else None
    if found is None or port is None:
        return None
    rule = merged_rule(db, rule_key) if rule_key else None
    subset = rule.subset(key.subset) if rule is not None and key.subset else None
    if key.subset and subset is None:
        return None
    return ClusterDestination(found, port, rule, subset, sni_routed, db.settings.listeners.redis_filter and port.protocol is Protocol.REDIS)


def find_eds_destination(db: Mesh, key: ClusterKey, rule_key: MergedRuleKey, proxy_type: NodeType) -> ClusterDestination | None:
    """Returns what a key stands for where the endpoints of its cluster come by EDS, else None. No node of its own."""
    to = find_destination(db, key, rule_key)
    if to is None or is_dynamic(to.service):
        return None
    return to if find_shape(to, proxy_type, cluster_defaults(db)).final == cluster_pb2.Cluster.EDS else None
