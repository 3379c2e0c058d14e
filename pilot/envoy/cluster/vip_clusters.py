"""Builds the clusters for the services behind a waypoint: one for each combination of port, protocol and subset.

A port without a known protocol has two clusters, one for HTTP and one for other protocols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2

from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.cluster import cluster_metadata as metadata
from pilot.envoy.cluster.baggage import apply_discovery, disable_discovery
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
from pilot.envoy.cluster.inline_endpoints import InlineEndpoints
from pilot.envoy.cluster.policy.cluster_sockets import TlsPeer, build_context
from pilot.envoy.cluster.policy.connection_pool import apply_connection_pool, apply_h2_upgrade
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy, effective_port_policy, effective_subset_policy
from pilot.envoy.cluster.policy.load_balancing import apply_load_balancing
from pilot.envoy.cluster.policy.outlier_detection import apply_outlier_detection
from pilot.envoy.names import HTTP, TCP, vip_subset
from pilot.envoy.transport_socket.hbone_sockets import ENDPOINT_METADATA, PEER_METADATA, build_internal_upstream
from pilot.envoy.transport_socket.transport_sockets import PLAINTEXT, build_proxy_protocol, build_upstream_tls
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import MergedRuleKey, inbound_merged_rule_key, merged_rule

_DYNAMIC = frozenset((Protocol.HTTP,))
_DYNAMIC_WITH_TLS = _DYNAMIC | {Protocol.TLS}  # with the SNI only, a client may reach any host


class VipKey(NamedTuple):
    """The key of a cluster for a service behind a waypoint: a port of the service, or of one of its subsets.

    `protocol` is HTTP or TCP. `subset` is "" for the whole service.
    """

    ref: ServiceRef
    port: int
    protocol: str
    subset: str = ""

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return names.vip_cluster(self.port, vip_subset(self.protocol, self.subset), self.ref.hostname)


class ResolvedVipKey(NamedTuple):
    """The key of a cluster, and the keys of the DestinationRules that apply to it in merged form."""

    cluster: VipKey
    rule: MergedRuleKey


def possible_protocols(protocol: Protocol) -> tuple[str, ...]:
    """Return the protocols that may be used on a port: HTTP, TCP or both."""
    if protocol is Protocol.UNSUPPORTED:
        return TCP, HTTP
    return (HTTP,) if protocol.is_http else (TCP,)


@derived
def service_vip_keys(db: Mesh, ref: ServiceRef, namespace: str) -> tuple[ResolvedVipKey, ...]:
    """Return the keys of a service's clusters for the waypoints in a namespace."""
    row = service(db, ref)
    if row is None:
        return ()
    rule_key = inbound_merged_rule_key(db, namespace, ref)
    rule = merged_rule(db, rule_key) if rule_key else None
    subsets = (
        dict.fromkeys(("", *(s.name for s in rule.spec.subsets))) if rule is not None and not is_dynamic(row) else ("",)
    )
    return tuple(ResolvedVipKey(key, rule_key) for key in _keys(row, tuple(subsets), db.settings.ambient.wildcard_tls))


def _keys(service: Service, subsets: tuple[str, ...], wildcard_tls: bool) -> Iterator[VipKey]:
    for port, protocols in vip_ports(service, wildcard_tls):
        for subset in subsets:
            for protocol in protocols:
                yield VipKey(service.ref, port.number, protocol, subset)


def vip_ports(service: Service, wildcard_tls: bool = False) -> Iterator[tuple[Port, tuple[str, ...]]]:
    """Yield the ports of a service that a waypoint serves, together with their possible protocols.

    `wildcard_tls` is true if a waypoint resolves the SNI of TLS connections to wildcard hosts.
    """
    dynamic = _DYNAMIC_WITH_TLS if wildcard_tls else _DYNAMIC
    for number in dict.fromkeys(p.number for p in service.ports):
        port = cluster_port(service, number)
        if port is not None and has_cluster(service, port) and (not is_dynamic(service) or port.protocol in dynamic):
            yield port, possible_protocols(port.protocol)


def find_vip_destination(db: Mesh, key: ResolvedVipKey) -> ClusterDestination | None:
    """Return the destination for a key, or None if the service, port or subset no longer exists. Not memoised."""
    vip_key, rule_key = key
    row = service(db, vip_key.ref)
    port = cluster_port(row, vip_key.port) if row is not None else None
    if row is None or port is None:
        return None
    rule = merged_rule(db, rule_key) if rule_key else None
    subset = rule.subset(vip_key.subset) if rule is not None and vip_key.subset else None
    return None if vip_key.subset and subset is None else ClusterDestination(row, port, rule, subset)


def has_inline_endpoints(service: Service) -> bool:
    """Return whether a service's clusters contain their endpoints. If so, the clusters depend on the waypoint's
    location."""
    return not is_dynamic(service) and discovery_type(service, router=False) in INLINE


def vip_discovery_type(destination: ClusterDestination) -> cluster_pb2.Cluster.DiscoveryType:
    """Return the discovery type of a cluster."""
    return (
        apply_policy_to_type(discovery_type(destination.service, router=False), vip_policy(destination))
        if not is_dynamic(destination.service)
        else cluster_pb2.Cluster.STATIC
    )


def vip_policy(destination: ClusterDestination) -> EffectivePolicy:
    """Return the effective policy of a cluster. The defaults of the mesh config do not apply."""
    whole = effective_port_policy(
        destination.rule.spec.traffic_policy if destination.rule is not None else None, destination.port.number, None
    )
    return (
        whole
        if destination.subset is None
        else effective_subset_policy(whole, destination.subset.traffic_policy, destination.port.number)
    )


def resolve_vip(
    db: Mesh, key: ResolvedVipKey, traits: ClusterTraitsKey, endpoints: InlineEndpoints | None
) -> cluster_pb2.Cluster | None:
    """Return the cluster for a key, without its inline endpoints. Not memoised.

    Return None if the destination no longer exists, or if the cluster must contain `endpoints` but there are none.
    """
    destination = find_vip_destination(db, key)
    if destination is None or (endpoints is None and has_inline_endpoints(destination.service)):
        return None
    return build_vip(key.cluster, destination, traits, cluster_defaults(db), endpoints)


def build_vip(
    key: VipKey,
    destination: ClusterDestination,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
    endpoints: InlineEndpoints | None,
) -> cluster_pb2.Cluster:
    """Return the cluster for a key, without its inline endpoints."""
    if is_dynamic(destination.service):
        draft = draft_dynamic_cluster(key.name, destination, traits, defaults)
    else:
        draft = draft_cluster(
            key.name, destination, discovery_type(destination.service, router=False), traits, defaults, endpoints
        )
    policy = vip_policy(destination)
    apply_connection_pool(draft, policy, defaults)
    apply_h2_upgrade(draft, destination.port.protocol, policy.connection_pool, defaults.h2_upgrade)
    if policy.outlier_detection is not None:
        apply_outlier_detection(draft, policy.outlier_detection, defaults.always_send_unhealthy)
    apply_load_balancing(draft, policy.load_balancer, destination.service, False, defaults, NodeType.WAYPOINT)
    apply_eds(draft.cluster)
    _set_socket(draft, policy, traits, defaults)
    metadata.add_services(draft.cluster, (destination.service,))
    if destination.rule is not None and policy != EffectivePolicy():
        metadata.set_rule(draft.cluster, destination.rule.key)
    metadata.set_subset(draft.cluster, vip_subset(key.protocol, key.subset))
    return draft.build()


def _set_socket(
    draft: ClusterDraft, policy: EffectivePolicy, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> None:
    """Set the transport socket for the connection inside the tunnel.

    The cluster originates TLS if the DestinationRule configures it. Otherwise it sends plaintext, because the tunnel is
    encrypted.
    """
    inner, cluster = PLAINTEXT, draft.cluster
    if policy.tls is not None and policy.tls.mode in ("SIMPLE", "MUTUAL"):
        context = build_context(draft, policy.tls, TlsPeer(has_workload_selector=True), traits, defaults)
        inner = build_upstream_tls(context) if context is not None else PLAINTEXT
    if policy.proxy_protocol is not None:
        inner = build_proxy_protocol(inner, policy.proxy_protocol)
    cluster.ClearField("transport_socket_matches")
    passed = ENDPOINT_METADATA + (PEER_METADATA if defaults.baggage else ())
    cluster.transport_socket.CopyFrom(build_internal_upstream(inner, passed))
    apply_discovery(cluster, traits, defaults)
    if inner is not PLAINTEXT:
        disable_discovery(cluster, traits, defaults)
