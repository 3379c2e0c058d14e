"""Derives the clusters that gRPC clients ask for by name, and their endpoints."""

from __future__ import annotations

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import ConnectionPoolSettings, LoadBalancerSettings
from pilot.derive import Lookup, derived
from pilot.envoy.cluster.cluster_builder import ClusterDestination
from pilot.envoy.cluster.cluster_keys import ClusterKey, ResolvedClusterKey, find_destination
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy, effective_port_policy, effective_subset_policy
from pilot.envoy.cluster.policy.load_balancing import RING_SIZE
from pilot.envoy.endpoint.load_assignments import outbound_load_assignment
from pilot.envoy.names import OUTBOUND, parse_cluster
from pilot.envoy.proxyless.client_listeners import ADS
from pilot.envoy.proxyless.grpc_tls import build_client_socket
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.proxies.proxyless import ProxylessFacet
from pilot.mesh.registry.endpoints import service_accounts
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import EVERYBODY, visible_rule_key, ruled_hosts
from pilot.mesh.traffic.imports import imported

_Cluster = cluster_pb2.Cluster


@derived
def _cluster_key(db: Mesh, name: str, client: ProxylessFacet) -> ResolvedClusterKey | None:
    """Returns what a client means by the name of a cluster; None where it sees no such service, port or subset."""
    parsed = parse_cluster(name)
    scope = client.outbound.scope
    found = imported(db, scope, parsed.host) if parsed is not None and parsed.direction == OUTBOUND else None
    if parsed is None or found is None:
        return None
    own = ruled_hosts(db, scope.namespace).has(parsed.host)
    namespace, labels = (scope.namespace, client.outbound.labels) if own else EVERYBODY
    return ResolvedClusterKey(
        ClusterKey(found.ref, parsed.port, parsed.subset), visible_rule_key(db, namespace, labels, found.ref)
    )


@derived
def _cluster(db: Mesh, name: str, client: ProxylessFacet) -> Resource | None:
    key = _cluster_key(db, name, client)
    to = find_destination(db, key) if key is not None else None
    if key is None or to is None:
        return None
    return Resource.of(
        CLUSTER, build_cluster(name, effective_policy(to), service_accounts(db, key.cluster.ref)), warms=name
    )


@derived
def _endpoints(db: Mesh, name: str, client: ProxylessFacet) -> Resource | None:
    key = _cluster_key(db, name, client)
    return outbound_load_assignment(db, key, client.outbound) if key is not None else None


clusters: Lookup[str, [ProxylessFacet], Resource] = Lookup("proxyless clusters", _cluster)
cluster_endpoints: Lookup[str, [ProxylessFacet], Resource] = Lookup("proxyless endpoints", _endpoints)


def effective_policy(to: ClusterDestination) -> EffectivePolicy:
    """Returns the rule's policy for a port, or for a subset of it; the mesh's defaults are for proxies."""
    policy = effective_port_policy(to.rule.spec.traffic_policy if to.rule is not None else None, to.port.number, None)
    return (
        effective_subset_policy(policy, to.subset.traffic_policy, to.port.number) if to.subset is not None else policy
    )


def build_cluster(name: str, policy: EffectivePolicy, accounts: tuple[str, ...]) -> cluster_pb2.Cluster:
    """Returns the cluster. TLS is used where a rule says ISTIO_MUTUAL alone, for gRPC cannot tell which endpoints take it; `accounts` are the
    identities that these may have."""
    made = _Cluster(
        name=name, type=_Cluster.EDS, eds_cluster_config=_Cluster.EdsClusterConfig(eds_config=ADS, service_name=name)
    )
    if policy.load_balancer is not None:
        _balance(made, policy.load_balancer)
    if (limit := _most_requests(policy.connection_pool)) is not None:
        made.circuit_breakers.CopyFrom(circuit_breaker_pb2.CircuitBreakers(thresholds=[limit]))
    if policy.tls is not None and policy.tls.mode == "ISTIO_MUTUAL":
        made.transport_socket.CopyFrom(build_client_socket(policy.tls.subject_alt_names or accounts))
    return made


def _balance(made: cluster_pb2.Cluster, settings: LoadBalancerSettings) -> None:
    """Sets how gRPC chooses: in turn, where nothing is said that it knows."""
    if (said := settings.consistent_hash) is not None:
        made.lb_policy = _Cluster.RING_HASH
        ring = said.ring_hash.minimum_ring_size if said.ring_hash is not None else said.minimum_ring_size
        made.ring_hash_lb_config.minimum_ring_size.CopyFrom(wrappers_pb2.UInt64Value(value=ring or RING_SIZE))
    elif settings.simple in ("LEAST_REQUEST", "LEAST_CONN"):
        made.lb_policy = _Cluster.LEAST_REQUEST


def _most_requests(pool: ConnectionPoolSettings | None) -> circuit_breaker_pb2.CircuitBreakers.Thresholds | None:
    """Returns the one limit that gRPC knows, None where it is not said."""
    if pool is None or pool.http is None or pool.http.http2_max_requests <= 0:
        return None
    return circuit_breaker_pb2.CircuitBreakers.Thresholds(
        max_requests=wrappers_pb2.UInt32Value(value=pool.http.http2_max_requests)
    )
