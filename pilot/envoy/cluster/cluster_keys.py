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

from pilot.config.protocol import Protocol
from pilot.derive import Gather, derived
from pilot.envoy import names
from pilot.envoy.cluster.cluster_builder import ClusterDestination, find_cluster_shape
from pilot.envoy.cluster.cluster_defaults import cluster_defaults
from pilot.envoy.cluster.endpoint_discovery import INLINE, discovery_type, has_cluster, is_dynamic
from pilot.mesh.model.facets import PARTS_KEPT, Labels, OutboundFacet, ScopeFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.proxies.gateway_destinations import routed_services
from pilot.mesh.proxies.waypoint_destinations import onward_services
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import EVERYBODY, MergedRuleKey, merged_rule, merged_rule_seen, ruled_hosts
from pilot.mesh.traffic.imports import ImportKey, scope_services


class ClusterKey(NamedTuple):
    """Names a port of a service, or of a subset of it; `subset` is "" for the whole service."""

    ref: ServiceRef
    port: int
    subset: str = ""

    @property
    def name(self) -> str:
        """Returns the cluster's name."""
        return names.outbound_cluster(self.port, self.subset, self.ref.hostname)


class ResolvedClusterKey(NamedTuple):
    """Names a cluster, and the DestinationRules that make the one which its clients follow."""

    cluster: ClusterKey
    rule: MergedRuleKey

    @property
    def name(self) -> str:
        """Returns the cluster's name."""
        return self.cluster.name


class ServiceViewKey(NamedTuple):
    """Names what clients import of a service, and the namespace and labels by which they find its rules: "" and none where these do not
    matter."""

    imported: ImportKey
    namespace: str
    labels: Labels


class ClusterListKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what of a proxy decides which clusters it has: what it sees, and which rules are for it."""

    scope: ScopeFacet
    labels: Labels


class ServiceClusterKeys(NamedTuple):
    """Holds the keys of one service. `inline`: its endpoints are part of its clusters, unless a rule passes through."""

    keys: tuple[ResolvedClusterKey, ...]
    inline: bool


@lru_cache(maxsize=PARTS_KEPT)
def list_key(outbound: OutboundFacet) -> ClusterListKey:
    """Returns what of a proxy's outbound side decides on its keys."""
    return ClusterListKey(outbound.scope, outbound.labels)


def cluster_port(found: Service, number: int) -> Port | None:
    """Returns the port of a number that clusters are for: TCP, where UDP has the same number; None where there is none."""
    return next((p for p in found.ports if p.number == number and p.protocol is not Protocol.UDP), None)


@derived
def _views(db: Mesh, by: ClusterListKey) -> tuple[ServiceViewKey, ...]:
    """Returns what is seen of each service."""
    if by.scope.routed is not None:
        imports: Iterable[ImportKey] = routed_services(
            db, msgspec.structs.replace(by.scope, routed=None), by.scope.routed
        )
    elif by.scope.waypoint is not None:
        imports = onward_services(db, by.scope.waypoint)
    else:
        imports = scope_services(db, by.scope).values()
    own, namespace, labels = ruled_hosts(db, by.scope.namespace), by.scope.namespace, by.labels
    return tuple(
        ServiceViewKey(item, *((namespace, labels) if own.has(item.ref.hostname) else EVERYBODY)) for item in imports
    )


@derived
def _keys_of_service(db: Mesh, seen: ServiceViewKey) -> ServiceClusterKeys | None:
    ref = seen.imported.ref
    found = service(db, ref)
    if found is None:
        return None
    ports = dict.fromkeys(p.number for p in seen.imported.visible_ports(found) if has_cluster(found, p))
    if found.is_pool:  # whose endpoints are all behind its first port
        ports = {number: None for number in ports if number == found.ports[0].number}
    if not ports:
        return None
    rule_key = merged_rule_seen(db, seen.namespace, seen.labels, ref)
    rule = merged_rule(db, rule_key) if rule_key and not is_dynamic(found) else None
    subsets = dict.fromkeys(s.name for s in rule.spec.subsets) if rule is not None else ()
    keys = tuple(
        ResolvedClusterKey(ClusterKey(ref, port, subset), rule_key) for port in ports for subset in ("", *subsets)
    )
    return ServiceClusterKeys(keys, discovery_type(found, router=False) in INLINE)


_keys_by_service: Gather[ServiceViewKey, [ClusterListKey], ServiceClusterKeys] = Gather(
    "cluster keys of services", _views, _keys_of_service, passed=lambda by: ()
)
"""The keys of each service, which proxies of many namespaces share."""


@derived
def _listed(db: Mesh, by: ClusterListKey, inline: bool) -> tuple[ResolvedClusterKey, ...]:
    """Returns the keys of the services whose clusters hold their endpoints, or of those whose clusters do not."""
    return tuple(chain.from_iterable(s.keys for s in _keys_by_service(db, by).values() if s.inline is inline))


@derived
def cluster_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ResolvedClusterKey, ...]:
    """Returns the keys of all outbound clusters of a proxy, also of those that come to nothing for lack of endpoints."""
    by = list_key(outbound)
    return _listed(db, by, False) + _listed(db, by, True)


@derived
def location_independent_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ResolvedClusterKey, ...]:
    """Returns the clusters that are the same wherever the proxy is: their endpoints come by EDS, or not at all."""
    return _listed(db, list_key(outbound), False)


@derived
def inline_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ResolvedClusterKey, ...]:
    """Returns the clusters that hold their endpoints, which are ordered by where the proxy is."""
    return _listed(db, list_key(outbound), True)


def find_destination(db: Mesh, ruled: ResolvedClusterKey, sni_routed: bool = False) -> ClusterDestination | None:
    """Returns what a key stands for; None where it no longer stands for anything."""
    key, rule_key = ruled
    found = service(db, key.ref)
    port = cluster_port(found, key.port) if found is not None else None
    if found is None or port is None:
        return None
    rule = merged_rule(db, rule_key) if rule_key else None
    subset = rule.subset(key.subset) if rule is not None and key.subset else None
    if key.subset and subset is None:
        return None
    return ClusterDestination(
        found, port, rule, subset, sni_routed, db.settings.listeners.redis_filter and port.protocol is Protocol.REDIS
    )


def find_eds_destination(db: Mesh, ruled: ResolvedClusterKey, proxy_type: NodeType) -> ClusterDestination | None:
    """Returns what a key stands for where the endpoints of its cluster come by EDS, else None. No node of its own."""
    to = find_destination(db, ruled)
    if to is None or is_dynamic(to.service):
        return None
    return to if find_cluster_shape(to, proxy_type, cluster_defaults(db)).final == cluster_pb2.Cluster.EDS else None
