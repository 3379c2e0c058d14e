"""Builds one outbound cluster: a port of a service, or of a subset of it, under the rule that applies."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2, filter_pb2
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.config.networking.destination_rule import Subset
from pilot.envoy import names
from pilot.envoy.cluster import cluster_metadata as metadata
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


# Envoy drops endpoints that drain, unless it is told to keep them for the sessions that they still have.
_KEEP_DRAINING = health_check_pb2.HealthStatusSet(
    statuses=[
        health_check_pb2.HealthStatus.HEALTHY,
        health_check_pb2.HealthStatus.DRAINING,
        health_check_pb2.HealthStatus.UNKNOWN,
        health_check_pb2.HealthStatus.DEGRADED,
    ]
)


class ClusterDestination(NamedTuple):
    """Says what a cluster leads to. `subset` is one of `rule`, or None for the whole service.

    `sni_routed`: the cluster is for a gateway that forwards by SNI and leaves the client's TLS as it is. `redis`: a filter shards the
    port by key. `all_hbone`: there are endpoints, and all of them take HBONE.
    """

    service: Service
    port: Port
    rule: MergedRule | None = None
    subset: Subset | None = None
    sni_routed: bool = False
    redis: bool = False
    all_hbone: bool = False


class ClusterShape(NamedTuple):
    """Holds the policy of a cluster, and its discovery type before (`start`) and after (`final`) that policy's load balancer has its say."""

    policy: EffectivePolicy
    start: cluster_pb2.Cluster.DiscoveryType
    final: cluster_pb2.Cluster.DiscoveryType


def find_cluster_shape(to: ClusterDestination, proxy_type: NodeType, defaults: ClusterDefaults) -> ClusterShape:
    """Returns the shape of a cluster for a kind of proxy. A subset starts with what became of the whole service, or passes through by itself."""
    rule = to.rule.spec.traffic_policy if to.rule is not None else None
    policy = effective_port_policy(rule, to.port.number, defaults.traffic_policy)
    start = discovery_type(to.service, proxy_type is NodeType.ROUTER, defaults.headless_eds)
    final = apply_policy_to_type(start, policy, to.redis)
    if to.subset is None:
        return ClusterShape(policy, start, final)
    own = effective_subset_policy(policy, to.subset.traffic_policy, to.port.number)
    start = _Cluster.ORIGINAL_DST if passes_through(to.subset.traffic_policy) else final
    return ClusterShape(own, start, apply_policy_to_type(start, own, to.redis))


def build_outbound(
    to: ClusterDestination,
    accounts: tuple[str, ...],
    mtls: Mode,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: endpoint_pb2.ClusterLoadAssignment | None = None,
) -> cluster_pb2.Cluster | None:
    """Returns the cluster; None where it must hold `endpoints` and has none, for Envoy refuses it."""
    shape = find_cluster_shape(to, traits.type, defaults)
    if is_dynamic(to.service) and not to.sni_routed:
        draft = draft_dynamic_cluster(cluster_name(to), to, traits, defaults)
    elif shape.start in INLINE and endpoints is None:
        return None
    else:
        draft = _start(to, shape.start, traits, defaults, endpoints)
    _apply_policy(draft, to, shape.policy, accounts, mtls, traits, defaults)
    apply_eds(draft.cluster)
    if to.service.is_pool and traits.type is NodeType.ROUTER and to.subset is None:
        apply_override_host(draft.cluster)
    if defaults.metadata_exchange and traits.metadata_exchange:
        draft.cluster.filters.add().CopyFrom(build_metadata_exchange_filter(defaults.metadata_exchange_labels))
    _describe(draft.cluster, to, shape.policy)
    return draft.build()


def cluster_name(to: ClusterDestination) -> str:
    """Returns the name of a cluster."""
    build = names.dns_srv if to.sni_routed else names.outbound_cluster
    return build(to.port.number, to.subset.name if to.subset is not None else "", to.service.hostname)


@lru_cache(maxsize=64)
def build_metadata_exchange_filter(labels: tuple[str, ...]) -> filter_pb2.Filter:
    """Returns the upstream network filter that exchanges metadata with peers over TCP."""
    return filter_pb2.Filter(name=METADATA_EXCHANGE_FILTER, typed_config=build_metadata_exchange_config(labels))


def draft_dynamic_cluster(
    name: str, to: ClusterDestination, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> ClusterDraft:
    """Returns a cluster of a wildcard host, with nothing but how its hosts are resolved and what is spoken."""
    family = lookup_family(traits.ipv4, traits.ipv6, defaults.dual_stack, defaults.ipv6_only_has_ipv4)
    draft = build_dynamic_forward_proxy(name, build_dns_cache(names.dns_cache(to.service.hostname), family))
    apply_protocol(draft, to.port.protocol, traits)
    return draft


def _start(
    to: ClusterDestination,
    start: cluster_pb2.Cluster.DiscoveryType,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: endpoint_pb2.ClusterLoadAssignment | None,
) -> ClusterDraft:
    draft = draft_cluster(cluster_name(to), to, start, traits, defaults, endpoints)
    cluster, service = draft.cluster, to.service
    if pattern := defaults.outbound_stat_name:
        subset = to.subset.name if to.subset is not None else ""
        cluster.alt_stat_name = with_stat_delimiter(build_stat_name(pattern, service, to.port, subset))
    if defaults.telemetry_label:
        metadata.add_services(cluster, (service,))
    if to.subset is None and not to.sni_routed and (service.session_label or service.session_header_label):
        cluster.common_lb_config.override_host_status.CopyFrom(_KEEP_DRAINING)
    return draft


def draft_cluster(
    name: str,
    to: ClusterDestination,
    start: cluster_pb2.Cluster.DiscoveryType,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: endpoint_pb2.ClusterLoadAssignment | None,
) -> ClusterDraft:
    """Returns a cluster with nothing but how its endpoints are found and what is spoken."""
    service, port = to.service, to.port
    cluster = _Cluster(name=name, type=start, alt_stat_name=with_stat_delimiter(name))
    cluster.common_lb_config.SetInParent()
    if start in INLINE:
        apply_dns(cluster, service, traits, defaults)
        cluster.load_assignment.CopyFrom(endpoints)
        cluster.load_assignment.cluster_name = name
    elif start == _Cluster.ORIGINAL_DST and has_target_port_override(service, port):
        cluster.original_dst_lb_config.upstream_port_override.value = int(port.target)
    draft = ClusterDraft(cluster)
    apply_protocol(draft, port.protocol, traits)
    return draft


def has_target_port_override(service: Service, port: Port) -> bool:
    """Returns whether a ServiceEntry without endpoints says that its hosts listen on another port."""
    without_endpoints = service.resolution is Resolution.PASSTHROUGH and service.registry is Registry.EXTERNAL
    return without_endpoints and isinstance(port.target, int) and port.target not in (0, port.number)


def _apply_policy(
    draft: ClusterDraft,
    to: ClusterDestination,
    policy: EffectivePolicy,
    accounts: tuple[str, ...],
    mtls: Mode,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
) -> None:
    service, port = to.service, to.port
    apply_h2_upgrade(draft, port.protocol, policy.connection_pool, defaults.h2_upgrade)
    apply_connection_pool(draft, policy, defaults)
    if policy.outlier_detection is not None:
        apply_outlier_detection(draft, policy.outlier_detection, forces_unhealthy(service, defaults))
    apply_load_balancing(draft, policy.load_balancer, service, to.redis, defaults, traits.type)
    if not to.sni_routed:
        apply_upstream_tls(draft, policy.tls, _peer(to, draft, accounts, mtls), traits, defaults)
        if policy.proxy_protocol is not None:
            apply_proxy_protocol(draft, policy.proxy_protocol)
    if draft.passes_through:
        draft.cluster.lb_policy = _Cluster.CLUSTER_PROVIDED


def _peer(to: ClusterDestination, draft: ClusterDraft, accounts: tuple[str, ...], mtls: Mode) -> TlsPeer:
    service = to.service
    subset = to.subset.name if to.subset is not None else ""
    return TlsPeer(
        sni="" if draft.dynamic else names.dns_srv(to.port.number, subset, service.hostname),
        accounts=() if draft.dynamic else accounts,
        mtls=mtls,
        external=service.mesh_external,
        entry=service.registry is Registry.EXTERNAL,
        for_workloads=to.rule is not None and to.rule.spec.workload_selector is not None,
    )


def _describe(cluster: cluster_pb2.Cluster, to: ClusterDestination, policy: EffectivePolicy) -> None:
    if to.subset is None and to.all_hbone:
        metadata.disable_metadata_exchange(cluster)
    elif to.subset is None and to.service.mesh_external:
        metadata.mark_external(cluster)
    if to.rule is None:
        return
    metadata.set_rule(cluster, to.rule.key)
    if to.subset is not None:
        metadata.set_subset(cluster, to.subset.name)
    if policy.tls is not None and policy.tls.mode in ("SIMPLE", "MUTUAL"):
        metadata.disable_alpn_override(cluster)
