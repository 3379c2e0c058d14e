"""Keys of a proxy's outbound clusters: one for each port of each visible service, and for each subset of that port.

Keys are gathered by service, so that a change to one rule only recomputes the keys of one service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple

import msgspec
from envoy.config.cluster.v3 import cluster_pb2

from pilot.config.protocol import Protocol
from pilot.derive import Gather, Steps, derived, derived_in_steps
from pilot.envoy import names
from pilot.envoy.cluster.cluster_builder import ClusterDestination, find_cluster_shape
from pilot.envoy.cluster.cluster_defaults import cluster_defaults
from pilot.envoy.cluster.endpoint_discovery import INLINE, discovery_type, has_cluster, is_dynamic
from pilot.mesh.model.facets import FACET_CACHE_SIZE, Labels, OutboundFacet, ScopeFacet
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.proxies.gateway_destinations import routed_services
from pilot.mesh.proxies.waypoint_destinations import onward_services
from pilot.mesh.registry.services import STEP, service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import (
    EVERYBODY,
    MergedRule,
    MergedRuleKey,
    merged_rule,
    ruled_hosts,
    visible_rule_key,
)
from pilot.mesh.traffic.imports import ImportKey, scope_services

MAX_WILDCARD_CLUSTERS = 8192
"""Maximum number of a proxy's clusters for the subsets of rules with wildcard hosts.

A rule for all services of a large mesh would otherwise have hundreds of thousands.
"""


class ClusterKey(NamedTuple):
    """A port of a service, or of one of its subsets. `subset` is "" for the whole service."""

    ref: ServiceRef
    port: int
    subset: str = ""

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return names.outbound_cluster(self.port, self.subset, self.ref.hostname)


class ResolvedClusterKey(NamedTuple):
    """The key of a cluster, and the keys of the DestinationRules that clients apply to it in merged form.

    `router_differs` is set if the cluster or its endpoints may be different for routers than for sidecars. Otherwise,
    both share them.
    """

    cluster: ClusterKey
    rule: MergedRuleKey
    router_differs: bool

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.cluster.name


class ServiceViewKey(NamedTuple):
    """A service as clients import it, and the namespace and labels of the clients.

    The namespace and labels select the DestinationRules that the clients apply. They are empty if they do not affect
    which DestinationRules apply to the service.
    """

    imported: ImportKey
    namespace: str
    labels: Labels


class ClusterListKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Properties of a proxy that determine which clusters it has: its scope, and its labels, which select
    DestinationRules."""

    scope: ScopeFacet
    labels: Labels


class ServiceClusterKeys(NamedTuple):
    """The cluster keys of one service. The subsets of a rule with a wildcard host are not among `keys`, but in
    `wildcard_subsets`.

    `inline` is set if the clusters contain their endpoints. A cluster is an exception if a DestinationRule sets its
    load balancer to PASSTHROUGH.
    """

    keys: tuple[ResolvedClusterKey, ...]
    inline: bool
    wildcard_subsets: tuple[str, ...] = ()

    def wildcard_keys(self) -> Iterator[ResolvedClusterKey]:
        """Yield the keys of the subsets in `wildcard_subsets`."""
        for (ref, port, _), rule, router_differs in self.keys:
            for subset in self.wildcard_subsets:
                yield ResolvedClusterKey(ClusterKey(ref, port, subset), rule, router_differs)


@lru_cache(maxsize=FACET_CACHE_SIZE)
def list_key(outbound: OutboundFacet) -> ClusterListKey:
    """Return the properties of a proxy's outbound side that determine its cluster keys."""
    return ClusterListKey(outbound.scope, outbound.labels)


def cluster_port(service: Service, number: int) -> Port | None:
    """Return the service's port with this number, or None if there is none. UDP ports are ignored."""
    for port in service.ports:
        if port.number == number and port.protocol is not Protocol.UDP:
            return port
    return None


def router_differs(service: Service, port: Port, rule: MergedRule | None) -> bool:
    """Return whether routers may have a different cluster or different endpoints than sidecars for a port.

    They treat the original destination, unknown protocols, inference pools and credentials differently.
    """
    return (
        service.resolution is Resolution.PASSTHROUGH
        or service.is_pool
        or port.protocol is Protocol.UNSUPPORTED
        or (rule is not None and rule.has_credentials)
    )


@derived_in_steps
def _views(db: Mesh, key: ClusterListKey) -> Steps[tuple[ServiceViewKey, ...]]:
    """Return the services that are visible to a proxy."""
    if key.scope.routed is not None:
        imports: Iterable[ImportKey] = routed_services(
            db, msgspec.structs.replace(key.scope, routed=None), key.scope.routed
        )
    elif key.scope.waypoint is not None:
        imports = onward_services(db, key.scope.waypoint)
    else:
        imports = scope_services(db, key.scope).values()
    hosts_with_rules, namespace, labels = ruled_hosts(db, key.scope.namespace), key.scope.namespace, key.labels
    views: list[ServiceViewKey] = []
    for number, item in enumerate(imports):
        is_ruled = hosts_with_rules.has(item.ref.hostname)
        views.append(ServiceViewKey(item, namespace, labels) if is_ruled else ServiceViewKey(item, *EVERYBODY))
        if number % STEP == 0:
            yield None
    return tuple(views)


@derived
def _keys_of_service(db: Mesh, view: ServiceViewKey) -> ServiceClusterKeys | None:
    ref = view.imported.ref
    row = service(db, ref)
    if row is None:
        return None
    ports: dict[int, Port] = {}
    for port in view.imported.visible_ports(row):
        # All endpoints of a pool are behind its first port.
        if has_cluster(row, port) and (not row.is_pool or port.number == row.ports[0].number):
            ports.setdefault(port.number, port)
    if not ports:
        return None
    rule_key = visible_rule_key(db, view.namespace, view.labels, ref)
    rule = merged_rule(db, rule_key) if rule_key and not is_dynamic(row) else None
    subsets = rule.subset_names(len(ports)) if rule is not None else ()
    own, wildcard = ((), subsets) if rule is not None and rule.is_wildcard else (subsets, ())
    keys = tuple(
        ResolvedClusterKey(ClusterKey(ref, number, subset), rule_key, router_differs(row, port, rule))
        for number, port in ports.items()
        for subset in ("", *own)
    )
    return ServiceClusterKeys(keys, discovery_type(row, router=False) in INLINE, wildcard)


_keys_by_service: Gather[ServiceViewKey, [ClusterListKey], ServiceClusterKeys] = Gather(
    "cluster keys of services", _views, _keys_of_service, passed=lambda key, by: ()
)
"""The keys of each service. Proxies in different namespaces share them."""


@derived_in_steps
def _list_keys(db: Mesh, key: ClusterListKey, inline: bool) -> Steps[tuple[ResolvedClusterKey, ...]]:
    """Return the cluster keys of all services with inline clusters or, if `inline` is False, of all other services."""
    listed: list[ResolvedClusterKey] = []
    with_wildcards: list[ServiceClusterKeys] = []
    for number, keys_of_service in enumerate(_keys_by_service(db, key).values(), 1):
        if keys_of_service.inline is inline:
            listed += keys_of_service.keys
            if keys_of_service.wildcard_subsets:
                with_wildcards.append(keys_of_service)
        if number % STEP == 0:
            yield None
    wildcard_keys = chain.from_iterable(k.wildcard_keys() for k in with_wildcards)
    return (*listed, *islice(wildcard_keys, MAX_WILDCARD_CLUSTERS))


@derived
def cluster_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ResolvedClusterKey, ...]:
    """Return the keys of all outbound clusters of a proxy, including inline clusters that may have no endpoints."""
    key = list_key(outbound)
    return _list_keys(db, key, False) + _list_keys(db, key, True)


@derived
def location_independent_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ResolvedClusterKey, ...]:
    """Return the keys of the clusters that do not depend on the proxy's location.

    Their endpoints arrive by EDS, or they have none.
    """
    return _list_keys(db, list_key(outbound), False)


@derived
def inline_keys(db: Mesh, outbound: OutboundFacet) -> tuple[ResolvedClusterKey, ...]:
    """Return the keys of the clusters that contain their endpoints. The endpoints depend on the proxy's location."""
    return _list_keys(db, list_key(outbound), True)


def find_destination(db: Mesh, key: ResolvedClusterKey, sni_routed: bool = False) -> ClusterDestination | None:
    """Return the destination for a key, or None if the service, port or subset no longer exists."""
    cluster_key, rule_key, _ = key
    row = service(db, cluster_key.ref)
    port = cluster_port(row, cluster_key.port) if row is not None else None
    if row is None or port is None:
        return None
    rule = merged_rule(db, rule_key) if rule_key else None
    subset = rule.subset(cluster_key.subset) if rule is not None and cluster_key.subset else None
    if cluster_key.subset and subset is None:
        return None
    return ClusterDestination(
        row, port, rule, subset, sni_routed, db.settings.listeners.redis_filter and port.protocol is Protocol.REDIS
    )


def find_eds_destination(db: Mesh, key: ResolvedClusterKey, router: bool) -> ClusterDestination | None:
    """Return the destination for a key, or None if its endpoints do not arrive by EDS. Not memoised.

    `router` is set if the client is a router.
    """
    destination = find_destination(db, key)
    if destination is None or is_dynamic(destination.service):
        return None
    shape = find_cluster_shape(destination, router, cluster_defaults(db))
    return destination if shape.final_type == cluster_pb2.Cluster.EDS else None
