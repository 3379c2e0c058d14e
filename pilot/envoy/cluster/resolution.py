"""Decides how Envoy finds the endpoints of a cluster."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import duration_pb2

from pilot.config.protocol import Protocol
from pilot.envoy.cluster.dynamic_forward_proxy import PROTOCOLS
from pilot.envoy.cluster.traffic_policy import EffectivePolicy
from pilot.mesh.model.service import Port, Registry, Resolution, Service

_Cluster = cluster_pb2.Cluster
INLINE = frozenset({_Cluster.STRICT_DNS, _Cluster.LOGICAL_DNS})  # the types whose endpoints are part of the cluster


def discovery_type(service: Service, router: bool, headless_eds: bool = False) -> cluster_pb2.Cluster.DiscoveryType:
    """Returns how Envoy finds the endpoints of a service. A router cannot pass through what has no original destination, and uses EDS instead."""
    if service.resolution is Resolution.DNS_LB:
        return _Cluster.LOGICAL_DNS if service.race_connect else _Cluster.STRICT_DNS
    if service.resolution is Resolution.DNS_ROUND_ROBIN_LB:
        return _Cluster.LOGICAL_DNS
    if (
        service.resolution is Resolution.PASSTHROUGH
        and not router
        and not (headless_eds and service.registry is Registry.KUBERNETES)
    ):
        return _Cluster.ORIGINAL_DST
    return _Cluster.EDS


def is_dynamic(service: Service) -> bool:
    """Returns whether a service is a wildcard whose hosts are resolved when requests ask for them."""
    return service.resolution is Resolution.DYNAMIC_DNS and service.hostname.startswith("*")


def has_cluster(service: Service, port: Port) -> bool:
    """Returns whether a port gets a cluster. An alias has none: it leads to the clusters of the service that it names."""
    if port.protocol is Protocol.UDP or service.resolution is Resolution.ALIAS:
        return False
    return not is_dynamic(service) or port.protocol in PROTOCOLS


def type_by_policy(
    found: cluster_pb2.Cluster.DiscoveryType, policy: EffectivePolicy, redis: bool = False
) -> cluster_pb2.Cluster.DiscoveryType:
    """Returns what becomes of a type under a policy: a load balancer PASSTHROUGH takes the client's word for the endpoint.

    `redis`: the port is sharded by a filter, which knows no passing through.
    """
    passes = policy.load_balancer is not None and policy.load_balancer.simple == "PASSTHROUGH"
    return _Cluster.ORIGINAL_DST if passes and not redis else found


@lru_cache(maxsize=1)
def _over_ads() -> cluster_pb2.Cluster.EdsClusterConfig:
    """Returns the configuration by which endpoints come over ADS; Envoy waits for them without a time limit."""
    config = _Cluster.EdsClusterConfig()
    config.eds_config.ads.SetInParent()
    config.eds_config.resource_api_version = 2  # V3
    config.eds_config.initial_fetch_timeout.CopyFrom(duration_pb2.Duration())
    return config


def apply_eds(cluster: cluster_pb2.Cluster) -> None:
    """Sets that endpoints come by the name of the cluster, where its type is EDS."""
    if cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type == _Cluster.EDS:
        cluster.eds_cluster_config.CopyFrom(_over_ads())
        cluster.eds_cluster_config.service_name = cluster.name
