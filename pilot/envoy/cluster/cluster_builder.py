"""Builds the outbound cluster for a port of a service, or for a port of one of its subsets."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2, filter_pb2
from envoy.config.core.v3 import health_check_pb2

from pilot.config.networking.destination_rule import Subset
from pilot.envoy import names
from pilot.envoy.cluster import cluster_metadata as metadata
from pilot.envoy.cluster.baggage import apply_discovery, disable_discovery
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.cluster.endpoint_discovery import (
    INLINE,
    apply_dns,
    apply_eds,
    apply_policy_to_type,
    build_dynamic_forward_proxy,
    discovery_type,
    is_dynamic,
    lookup_family,
)
from pilot.envoy.cluster.inline_endpoints import InlineEndpoints
from pilot.envoy.cluster.policy.cluster_sockets import TlsPeer, apply_proxy_protocol, apply_upstream_tls
from pilot.envoy.cluster.policy.connection_pool import apply_connection_pool, apply_h2_upgrade, apply_protocol
from pilot.envoy.cluster.policy.effective_policy import (
    EffectivePolicy,
    effective_port_policy,
    effective_subset_policy,
    passes_through,
)
from pilot.envoy.cluster.policy.load_balancing import apply_load_balancing, apply_override_host, forces_unhealthy
from pilot.envoy.cluster.policy.outlier_detection import apply_outlier_detection
from pilot.envoy.cluster.stat_name import build_stat_name, with_stat_delimiter
from pilot.envoy.http_filter.dynamic_forward_proxy import build_dns_cache
from pilot.envoy.network_filter.simple_network_filters import METADATA_EXCHANGE_FILTER, build_metadata_exchange_config
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Port, Registry, Resolution, Service
from pilot.mesh.security.mtls import Mode
from pilot.mesh.traffic.destination_rules import MergedRule

_Cluster = cluster_pb2.Cluster
# Envoy drops draining endpoints unless it is configured to keep them for their existing sessions.
_KEEP_DRAINING = health_check_pb2.HealthStatusSet(
    statuses=[
        health_check_pb2.HealthStatus.HEALTHY,
        health_check_pb2.HealthStatus.DRAINING,
        health_check_pb2.HealthStatus.UNKNOWN,
        health_check_pb2.HealthStatus.DEGRADED,
    ]
)


class ClusterDestination(NamedTuple):
    """The destination of a cluster: a port of `service`, limited to the endpoints of `subset` if that is not None.

    `rule` is the merged DestinationRule that contains the subset. `sni_routed` clusters belong to a gateway that
    forwards by SNI and leaves the client's TLS intact. `redis` is set if a filter shards the port's traffic by key.
    `all_hbone` is set if there are endpoints and all of them accept HBONE.
    """

    service: Service
    port: Port
    rule: MergedRule | None = None
    subset: Subset | None = None
    sni_routed: bool = False
    redis: bool = False
    all_hbone: bool = False


class ClusterShape(NamedTuple):
    """The effective policy of a cluster, and its discovery types before and after the policy is applied."""

    policy: EffectivePolicy
    initial_type: cluster_pb2.Cluster.DiscoveryType
    final_type: cluster_pb2.Cluster.DiscoveryType


def find_cluster_shape(destination: ClusterDestination, router: bool, defaults: ClusterDefaults) -> ClusterShape:
    """Return the shape of a cluster for routers or for other proxies.

    The initial type of a subset is the final type of the whole service. It is ORIGINAL_DST if the subset's own load
    balancer is PASSTHROUGH.
    """
    rule_policy = destination.rule.spec.traffic_policy if destination.rule is not None else None
    policy = effective_port_policy(rule_policy, destination.port.number, defaults.traffic_policy)
    initial_type = discovery_type(destination.service, router, defaults.headless_eds)
    final_type = apply_policy_to_type(initial_type, policy, destination.redis)
    if destination.subset is None:
        return ClusterShape(policy, initial_type, final_type)
    subset_policy = effective_subset_policy(policy, destination.subset.traffic_policy, destination.port.number)
    initial_type = _Cluster.ORIGINAL_DST if passes_through(destination.subset.traffic_policy) else final_type
    return ClusterShape(
        subset_policy, initial_type, apply_policy_to_type(initial_type, subset_policy, destination.redis)
    )


def build_outbound(
    destination: ClusterDestination,
    accounts: tuple[str, ...],
    mtls: Mode,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: InlineEndpoints | None = None,
) -> cluster_pb2.Cluster | None:
    """Return the outbound cluster for a destination. Its inline endpoints are only counted, and not part of it.

    Return None if the cluster must contain its endpoints and has none, because Envoy rejects such a cluster.
    """
    shape = find_cluster_shape(destination, traits.type is NodeType.ROUTER, defaults)
    if is_dynamic(destination.service) and not destination.sni_routed:
        draft = draft_dynamic_cluster(cluster_name(destination), destination, traits, defaults)
    elif shape.initial_type in INLINE and endpoints is None:
        return None
    else:
        draft = _draft_outbound(destination, shape.initial_type, traits, defaults, endpoints)
    _apply_policy(draft, destination, shape.policy, accounts, mtls, traits, defaults)
    apply_eds(draft.cluster)
    if destination.service.is_pool and traits.type is NodeType.ROUTER and destination.subset is None:
        apply_override_host(draft.cluster)
    if defaults.metadata_exchange and traits.metadata_exchange:
        draft.cluster.filters.add().CopyFrom(build_metadata_exchange_filter(defaults.metadata_exchange_labels))
    apply_discovery(draft.cluster, traits, defaults)
    _describe(draft.cluster, destination, shape.policy)
    return draft.build()


def cluster_name(destination: ClusterDestination) -> str:
    """Return the name of the cluster for a destination."""
    build = names.dns_srv if destination.sni_routed else names.outbound_cluster
    return build(
        destination.port.number,
        destination.subset.name if destination.subset is not None else "",
        destination.service.hostname,
    )


@lru_cache(maxsize=64)
def build_metadata_exchange_filter(labels: tuple[str, ...]) -> filter_pb2.Filter:
    """Return the upstream network filter that exchanges metadata with peers over TCP."""
    return filter_pb2.Filter(name=METADATA_EXCHANGE_FILTER, typed_config=build_metadata_exchange_config(labels))


def draft_dynamic_cluster(
    name: str, destination: ClusterDestination, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> ClusterDraft:
    """Return a draft of the cluster for a wildcard host. Only its DNS cache and protocol are set."""
    family = lookup_family(traits.ipv4, traits.ipv6, defaults.dual_stack, defaults.ipv6_only_has_ipv4)
    draft = build_dynamic_forward_proxy(name, build_dns_cache(names.dns_cache(destination.service.hostname), family))
    apply_protocol(draft, destination.port.protocol, traits)
    return draft


def _draft_outbound(
    destination: ClusterDestination,
    initial_type: cluster_pb2.Cluster.DiscoveryType,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: InlineEndpoints | None,
) -> ClusterDraft:
    draft = draft_cluster(cluster_name(destination), destination, initial_type, traits, defaults, endpoints)
    cluster, service = draft.cluster, destination.service
    if pattern := defaults.outbound_stat_name:
        subset = destination.subset.name if destination.subset is not None else ""
        cluster.alt_stat_name = with_stat_delimiter(build_stat_name(pattern, service, destination.port, subset))
    if defaults.telemetry_label:
        metadata.add_services(cluster, (service,))
    if (
        destination.subset is None
        and not destination.sni_routed
        and (service.session_label or service.session_header_label)
    ):
        cluster.common_lb_config.override_host_status.CopyFrom(_KEEP_DRAINING)
    return draft


def draft_cluster(
    name: str,
    destination: ClusterDestination,
    initial_type: cluster_pb2.Cluster.DiscoveryType,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: InlineEndpoints | None,
) -> ClusterDraft:
    """Return a draft of a cluster. Only its endpoint discovery and protocol are set, without the inline endpoints."""
    service, port = destination.service, destination.port
    cluster = _Cluster(name=name, type=initial_type, alt_stat_name=with_stat_delimiter(name))
    cluster.common_lb_config.SetInParent()
    if initial_type in INLINE:
        apply_dns(cluster, service, traits, defaults)
        cluster.load_assignment.cluster_name = name
        if endpoints is not None and endpoints.number > 1:
            cluster.type = _Cluster.STRICT_DNS  # Envoy rejects clusters of type LOGICAL_DNS with several endpoints
    elif initial_type == _Cluster.ORIGINAL_DST and has_target_port_override(service, port):
        cluster.original_dst_lb_config.upstream_port_override.value = int(port.target)
    draft = ClusterDraft(cluster)
    apply_protocol(draft, port.protocol, traits)
    return draft


def has_target_port_override(service: Service, port: Port) -> bool:
    """Return whether a ServiceEntry without endpoints declares that its hosts listen on a different port."""
    without_endpoints = service.resolution is Resolution.PASSTHROUGH and service.registry is Registry.EXTERNAL
    return without_endpoints and isinstance(port.target, int) and port.target not in (0, port.number)


def _apply_policy(
    draft: ClusterDraft,
    destination: ClusterDestination,
    policy: EffectivePolicy,
    accounts: tuple[str, ...],
    mtls: Mode,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
) -> None:
    service, port = destination.service, destination.port
    apply_h2_upgrade(draft, port.protocol, policy.connection_pool, defaults.h2_upgrade)
    apply_connection_pool(draft, policy, defaults)
    if policy.outlier_detection is not None:
        apply_outlier_detection(draft, policy.outlier_detection, forces_unhealthy(service, defaults))
    apply_load_balancing(draft, policy.load_balancer, service, destination.redis, defaults, traits.type)
    if not destination.sni_routed:
        apply_upstream_tls(draft, policy.tls, _peer(destination, draft, accounts, mtls), traits, defaults)
        if policy.proxy_protocol is not None:
            apply_proxy_protocol(draft, policy.proxy_protocol)
            disable_discovery(draft.cluster, traits, defaults)
    if draft.passes_through:
        draft.cluster.lb_policy = _Cluster.CLUSTER_PROVIDED


def _peer(destination: ClusterDestination, draft: ClusterDraft, accounts: tuple[str, ...], mtls: Mode) -> TlsPeer:
    service = destination.service
    subset = destination.subset.name if destination.subset is not None else ""
    return TlsPeer(
        sni="" if draft.dynamic else names.dns_srv(destination.port.number, subset, service.hostname),
        accounts=() if draft.dynamic else accounts,
        mtls=mtls,
        is_external=service.mesh_external,
        is_service_entry=service.registry is Registry.EXTERNAL,
        has_workload_selector=destination.rule is not None and destination.rule.spec.workload_selector is not None,
    )


def _describe(cluster: cluster_pb2.Cluster, destination: ClusterDestination, policy: EffectivePolicy) -> None:
    if destination.subset is None and destination.all_hbone:
        metadata.disable_metadata_exchange(cluster)
    elif destination.subset is None and destination.service.mesh_external:
        metadata.mark_external(cluster)
    if destination.rule is None:
        return
    metadata.set_rule(cluster, destination.rule.key)
    if destination.subset is not None:
        metadata.set_subset(cluster, destination.subset.name)
    if policy.tls is not None and policy.tls.mode in ("SIMPLE", "MUTUAL"):
        metadata.disable_alpn_override(cluster)
