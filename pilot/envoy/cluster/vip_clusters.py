"""Builds the clusters of the services behind a waypoint: one for each port by what is spoken on it, and one for each subset of that.

Where the port does not say what is spoken, there are two: one for HTTP and one for any other protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.cluster import cluster_metadata as metadata
from pilot.envoy.cluster.cluster_builder import ClusterDestination, draft_cluster, draft_dynamic_cluster
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults, cluster_defaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_keys import cluster_port
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.cluster.endpoint_discovery import (
    INLINE,
    apply_eds,
    apply_policy_to_type,
    discovery_type,
    has_cluster,
    is_dynamic,
)
from pilot.envoy.cluster.policy.cluster_sockets import TlsPeer, build_context
from pilot.envoy.cluster.policy.connection_pool import apply_connection_pool, apply_h2_upgrade
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy, effective_port_policy, effective_subset_policy
from pilot.envoy.cluster.policy.load_balancing import apply_load_balancing
from pilot.envoy.cluster.policy.outlier_detection import apply_outlier_detection
from pilot.envoy.names import HTTP, TCP, vip_subset
from pilot.envoy.transport_socket.hbone_sockets import ENDPOINT_METADATA, PLAIN, build_internal_upstream
from pilot.envoy.transport_socket.transport_sockets import build_proxy_protocol, build_upstream_tls
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import MergedRuleKey, inbound_merged_rule_key, merged_rule

_DYNAMIC = frozenset((Protocol.HTTP,))  # by SNI alone, a client could ask for any host


class VipKey(NamedTuple):
    """Names a port of a service behind a waypoint, or of a subset of it; `speaks` is HTTP or TCP, `subset` "" for the whole service."""

    ref: ServiceRef
    port: int
    speaks: str
    subset: str = ""

    @property
    def name(self) -> str:
        """Returns the cluster's name."""
        return names.vip_cluster(self.port, vip_subset(self.speaks, self.subset), self.ref.hostname)


class ResolvedVipKey(NamedTuple):
    """Names a cluster, and the DestinationRules that make the one which it follows."""

    cluster: VipKey
    rule: MergedRuleKey


def possible_protocols(protocol: Protocol) -> tuple[str, ...]:
    """Returns what may be spoken on a port: HTTP, TCP or both."""
    if protocol is Protocol.UNSUPPORTED:
        return TCP, HTTP
    return (HTTP,) if protocol.is_http else (TCP,)


@derived
def service_vip_keys(db: Mesh, ref: ServiceRef, namespace: str) -> tuple[ResolvedVipKey, ...]:
    """Returns the clusters of a service for the waypoints of a namespace."""
    found = service(db, ref)
    if found is None:
        return ()
    rule_key = inbound_merged_rule_key(db, namespace, ref)
    rule = merged_rule(db, rule_key) if rule_key else None
    subsets = (
        dict.fromkeys(("", *(s.name for s in rule.spec.subsets)))
        if rule is not None and not is_dynamic(found)
        else ("",)
    )
    return tuple(ResolvedVipKey(key, rule_key) for key in _keys(found, tuple(subsets)))


def _keys(found: Service, subsets: tuple[str, ...]) -> Iterator[VipKey]:
    for port, speaking in vip_ports(found):
        for subset in subsets:
            for speaks in speaking:
                yield VipKey(found.ref, port.number, speaks, subset)


def vip_ports(found: Service) -> Iterator[tuple[Port, tuple[str, ...]]]:
    """Yields the ports of a service that a waypoint serves, each with what may be spoken there."""
    for number in dict.fromkeys(p.number for p in found.ports):
        port = cluster_port(found, number)
        if port is not None and has_cluster(found, port) and (not is_dynamic(found) or port.protocol in _DYNAMIC):
            yield port, possible_protocols(port.protocol)


def find_vip_destination(db: Mesh, ruled: ResolvedVipKey) -> ClusterDestination | None:
    """Returns what a key stands for; None where it no longer stands for anything. No node of its own."""
    key, rule_key = ruled
    found = service(db, key.ref)
    port = cluster_port(found, key.port) if found is not None else None
    if found is None or port is None:
        return None
    rule = merged_rule(db, rule_key) if rule_key else None
    subset = rule.subset(key.subset) if rule is not None and key.subset else None
    return None if key.subset and subset is None else ClusterDestination(found, port, rule, subset)


def has_inline_endpoints(found: Service) -> bool:
    """Returns whether the clusters of a service hold their endpoints, so that they depend on where the waypoint is."""
    return not is_dynamic(found) and discovery_type(found, router=False) in INLINE


def vip_discovery_type(to: ClusterDestination) -> cluster_pb2.Cluster.DiscoveryType:
    """Returns how Envoy finds the endpoints of a cluster."""
    return (
        apply_policy_to_type(discovery_type(to.service, router=False), vip_policy(to))
        if not is_dynamic(to.service)
        else cluster_pb2.Cluster.STATIC
    )


def vip_policy(to: ClusterDestination) -> EffectivePolicy:
    """Returns the policy of a cluster: what the rule says and nothing else."""
    whole = effective_port_policy(to.rule.spec.traffic_policy if to.rule is not None else None, to.port.number, None)
    return whole if to.subset is None else effective_subset_policy(whole, to.subset.traffic_policy, to.port.number)


def resolve_vip(
    db: Mesh, ruled: ResolvedVipKey, traits: ClusterTraitsKey, endpoints: endpoint_pb2.ClusterLoadAssignment | None
) -> cluster_pb2.Cluster | None:
    """Returns the cluster of a key; `endpoints` where it holds them, without which there is none. No node of its own."""
    to = find_vip_destination(db, ruled)
    if to is None or (endpoints is None and has_inline_endpoints(to.service)):
        return None
    return build_vip(ruled.cluster, to, traits, cluster_defaults(db), endpoints)


def build_vip(
    key: VipKey,
    to: ClusterDestination,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: endpoint_pb2.ClusterLoadAssignment | None,
) -> cluster_pb2.Cluster:
    """Returns the cluster."""
    if is_dynamic(to.service):
        draft = draft_dynamic_cluster(key.name, to, traits, defaults)
    else:
        draft = draft_cluster(key.name, to, discovery_type(to.service, router=False), traits, defaults, endpoints)
    policy = vip_policy(to)
    apply_connection_pool(draft, policy, defaults)
    apply_h2_upgrade(draft, to.port.protocol, policy.connection_pool, defaults.h2_upgrade)
    if policy.outlier_detection is not None:
        apply_outlier_detection(draft, policy.outlier_detection, defaults.always_send_unhealthy)
    apply_load_balancing(draft, policy.load_balancer, to.service, False, defaults, NodeType.WAYPOINT)
    apply_eds(draft.cluster)
    _set_socket(draft, policy, traits, defaults)
    metadata.add_services(draft.cluster, (to.service,))
    if to.rule is not None and policy != EffectivePolicy():
        metadata.set_rule(draft.cluster, to.rule.key)
    metadata.set_subset(draft.cluster, vip_subset(key.speaks, key.subset))
    return draft.build()


def _set_socket(
    draft: ClusterDraft, policy: EffectivePolicy, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> None:
    """Sets what the tunnel carries: what the rule originates, else plain bytes, for the tunnel is encrypted."""
    inner = PLAIN
    if policy.tls is not None and policy.tls.mode in ("SIMPLE", "MUTUAL"):
        context = build_context(draft, policy.tls, TlsPeer(for_workloads=True), traits, defaults)
        inner = build_upstream_tls(context) if context is not None else PLAIN
    if policy.proxy_protocol is not None:
        inner = build_proxy_protocol(inner, policy.proxy_protocol)
    draft.cluster.ClearField("transport_socket_matches")
    draft.cluster.transport_socket.CopyFrom(build_internal_upstream(inner, ENDPOINT_METADATA))
