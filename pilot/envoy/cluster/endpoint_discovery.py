"""Discovery of a cluster's endpoints: EDS, DNS, the original destination, or a dynamic forward proxy."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.clusters.dynamic_forward_proxy.v3 import cluster_pb2 as dynamic_pb2
from envoy.extensions.common.dynamic_forward_proxy.v3 import dns_cache_pb2
from envoy.extensions.network.dns_resolver.cares.v3 import cares_dns_resolver_pb2
from google.protobuf import duration_pb2, wrappers_pb2

from pilot.config.protocol import Protocol
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy
from pilot.envoy.cluster.stat_name import with_stat_delimiter
from pilot.envoy.well_known_types import build_duration, pack
from pilot.mesh.model.service import Port, Registry, Resolution, Service

_Cluster = cluster_pb2.Cluster
INLINE = frozenset({_Cluster.STRICT_DNS, _Cluster.LOGICAL_DNS})  # types with endpoints inside the cluster


def discovery_type(service: Service, router: bool, headless_eds: bool = False) -> cluster_pb2.Cluster.DiscoveryType:
    """Return the discovery type for a service.

    Connections to a router have no original destination, so a router uses EDS instead.
    """
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
    """Return whether a service is a wildcard host, whose addresses are resolved for each request."""
    return service.resolution is Resolution.DYNAMIC_DNS and service.hostname.startswith("*")


def has_cluster(service: Service, port: Port) -> bool:
    """Return whether a port has a cluster. An alias has none: its routes use the clusters of the target service."""
    if port.protocol is Protocol.UDP or service.resolution is Resolution.ALIAS:
        return False
    return not is_dynamic(service) or port.protocol in HOST_AWARE_PROTOCOLS


def apply_policy_to_type(
    initial_type: cluster_pb2.Cluster.DiscoveryType, policy: EffectivePolicy, redis: bool = False
) -> cluster_pb2.Cluster.DiscoveryType:
    """Return the discovery type under a policy. With the load balancer PASSTHROUGH, it is the original destination.

    This does not apply to a Redis port, because the filter that shards it cannot use the original destination.
    """
    passes = policy.load_balancer is not None and policy.load_balancer.simple == "PASSTHROUGH"
    return _Cluster.ORIGINAL_DST if passes and not redis else initial_type


@lru_cache(maxsize=1)
def _over_ads() -> cluster_pb2.Cluster.EdsClusterConfig:
    """Return the configuration for receiving endpoints over ADS. Envoy waits for them without a timeout."""
    config = _Cluster.EdsClusterConfig()
    config.eds_config.ads.SetInParent()
    config.eds_config.resource_api_version = 2  # V3
    config.eds_config.initial_fetch_timeout.CopyFrom(duration_pb2.Duration())
    return config


def apply_eds(cluster: cluster_pb2.Cluster) -> None:
    """Configure EDS under the cluster's name if the cluster's type is EDS."""
    if cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type == _Cluster.EDS:
        cluster.eds_cluster_config.CopyFrom(_over_ads())
        cluster.eds_cluster_config.service_name = cluster.name


RESOLVER = "envoy.network.dns_resolver.cares"


def lookup_family(
    ipv4: bool, ipv6: bool, dual_stack: bool, ipv6_only_has_ipv4: bool
) -> cluster_pb2.Cluster.DnsLookupFamily:
    """Return the DNS lookup family for a proxy with these IP families."""
    if ipv4 and ipv6:
        return _Cluster.ALL if dual_stack else _Cluster.V4_ONLY
    if ipv6:
        return _Cluster.ALL if ipv6_only_has_ipv4 else _Cluster.V6_ONLY
    return _Cluster.V4_ONLY


@lru_cache(maxsize=8)
def _resolver(udp_max_queries: int) -> extension_pb2.TypedExtensionConfig:
    """Return a DNS resolver that replaces its socket after a number of queries.

    After too many queries on one socket, answers may be matched to the wrong queries.
    """
    config = cares_dns_resolver_pb2.CaresDnsResolverConfig(
        udp_max_queries=wrappers_pb2.UInt32Value(value=udp_max_queries)
    )
    return extension_pb2.TypedExtensionConfig(name=RESOLVER, typed_config=pack(config))


def apply_dns(
    cluster: cluster_pb2.Cluster, service: Service, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> None:
    """Configure how and how often Envoy resolves the endpoints by DNS."""
    family = lookup_family(traits.ipv4, traits.ipv6, defaults.dual_stack, defaults.ipv6_only_has_ipv4)
    cluster.dns_lookup_family = _Cluster.ALL if service.race_connect else family
    cluster.typed_dns_resolver_config.CopyFrom(_resolver(defaults.dns_udp_max_queries))
    cluster.dns_jitter.CopyFrom(build_duration(defaults.dns_jitter))
    cluster.dns_refresh_rate.CopyFrom(build_duration(defaults.dns_refresh_rate))
    cluster.respect_dns_ttl = True


DYNAMIC_FORWARD_PROXY = "envoy.clusters.dynamic_forward_proxy"
# Protocols that carry the host, in the authority or in the SNI.
HOST_AWARE_PROTOCOLS = frozenset({Protocol.HTTP, Protocol.TLS, Protocol.GRPC, Protocol.HTTP2})


def build_dynamic_forward_proxy(name: str, cache: dns_cache_pb2.DnsCacheConfig, insecure: bool = False) -> ClusterDraft:
    """Return a cluster that uses a DNS cache. The dynamic forward proxy filter must have the same cache configuration.

    If `insecure` is set, the hosts' certificates need not be verified.
    https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/clusters/dynamic_forward_proxy/v3/cluster.proto
    """
    config = dynamic_pb2.ClusterConfig(dns_cache_config=cache, allow_insecure_cluster_options=insecure)
    cluster = cluster_pb2.Cluster(
        name=name,
        alt_stat_name=with_stat_delimiter(name),
        lb_policy=cluster_pb2.Cluster.CLUSTER_PROVIDED,
        cluster_type=cluster_pb2.Cluster.CustomClusterType(name=DYNAMIC_FORWARD_PROXY, typed_config=pack(config)),
    )
    return ClusterDraft(cluster, dynamic=True, insecure=insecure)
