"""The clusters that gRPC clients request by name, and their endpoints."""

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
from pilot.mesh.traffic.destination_rules import EVERYBODY, ruled_hosts, visible_rule_key
from pilot.mesh.traffic.imports import imported

_Cluster = cluster_pb2.Cluster


@derived
def _cluster_key(db: Mesh, name: str, client: ProxylessFacet) -> ResolvedClusterKey | None:
    """Return the key of the cluster that a client requests, or None if the client cannot see the service, port or
    subset."""
    parsed = parse_cluster(name)
    scope = client.outbound.scope
    import_key = imported(db, scope, parsed.host) if parsed is not None and parsed.direction == OUTBOUND else None
    if parsed is None or import_key is None:
        return None
    has_own_rules = ruled_hosts(db, scope.namespace).has(parsed.host)
    namespace, labels = (scope.namespace, client.outbound.labels) if has_own_rules else EVERYBODY
    rule = visible_rule_key(db, namespace, labels, import_key.ref)
    # gRPC clients connect to endpoints like routers, also if a service has no address of its own.
    return ResolvedClusterKey(ClusterKey(import_key.ref, parsed.port, parsed.subset), rule, router_differs=True)


@derived
def _cluster(db: Mesh, name: str, client: ProxylessFacet) -> Resource | None:
    key = _cluster_key(db, name, client)
    destination = find_destination(db, key) if key is not None else None
    if key is None or destination is None:
        return None
    return Resource.of(
        CLUSTER, build_cluster(name, effective_policy(destination), service_accounts(db, key.cluster.ref)), warms=name
    )


@derived
def _endpoints(db: Mesh, name: str, client: ProxylessFacet) -> Resource | None:
    key = _cluster_key(db, name, client)
    return outbound_load_assignment(db, key, client.outbound) if key is not None else None


clusters: Lookup[str, [ProxylessFacet], Resource] = Lookup("proxyless clusters", _cluster)
cluster_endpoints: Lookup[str, [ProxylessFacet], Resource] = Lookup("proxyless endpoints", _endpoints)


def effective_policy(destination: ClusterDestination) -> EffectivePolicy:
    """Return the DestinationRule's traffic policy for the destination's port and subset.

    The mesh's defaults are not included, because they apply only to proxies.
    """
    policy = effective_port_policy(
        destination.rule.spec.traffic_policy if destination.rule is not None else None, destination.port.number, None
    )
    return (
        effective_subset_policy(policy, destination.subset.traffic_policy, destination.port.number)
        if destination.subset is not None
        else policy
    )


def build_cluster(name: str, policy: EffectivePolicy, accounts: tuple[str, ...]) -> cluster_pb2.Cluster:
    """Return the cluster. `accounts` are the identities that its endpoints may have.

    TLS is used only if a DestinationRule sets ISTIO_MUTUAL, because gRPC cannot tell which endpoints support it.
    """
    cluster = _Cluster(
        name=name, type=_Cluster.EDS, eds_cluster_config=_Cluster.EdsClusterConfig(eds_config=ADS, service_name=name)
    )
    if policy.load_balancer is not None:
        _balance(cluster, policy.load_balancer)
    if (limit := _max_requests(policy.connection_pool)) is not None:
        cluster.circuit_breakers.CopyFrom(circuit_breaker_pb2.CircuitBreakers(thresholds=[limit]))
    if policy.tls is not None and policy.tls.mode == "ISTIO_MUTUAL":
        cluster.transport_socket.CopyFrom(build_client_socket(policy.tls.subject_alt_names or accounts))
    return cluster


def _balance(cluster: cluster_pb2.Cluster, settings: LoadBalancerSettings) -> None:
    """Set the load balancing policy. gRPC supports only some policies. The default is round robin."""
    if (consistent_hash := settings.consistent_hash) is not None:
        cluster.lb_policy = _Cluster.RING_HASH
        ring = (
            consistent_hash.ring_hash.minimum_ring_size
            if consistent_hash.ring_hash is not None
            else consistent_hash.minimum_ring_size
        )
        cluster.ring_hash_lb_config.minimum_ring_size.CopyFrom(wrappers_pb2.UInt64Value(value=ring or RING_SIZE))
    elif settings.simple in ("LEAST_REQUEST", "LEAST_CONN"):
        cluster.lb_policy = _Cluster.LEAST_REQUEST


def _max_requests(pool: ConnectionPoolSettings | None) -> circuit_breaker_pb2.CircuitBreakers.Thresholds | None:
    """Return the maximum number of concurrent requests, or None if it is not set. gRPC supports no other limit."""
    if pool is None or pool.http is None or pool.http.http2_max_requests <= 0:
        return None
    return circuit_breaker_pb2.CircuitBreakers.Thresholds(
        max_requests=wrappers_pb2.UInt32Value(value=pool.http.http2_max_requests)
    )
