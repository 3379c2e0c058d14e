"""Sets up clusters whose endpoints Envoy resolves by DNS."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.network.dns_resolver.cares.v3 import cares_dns_resolver_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.cluster.defaults import ClusterDefaults, ClusterTraitsKey
from pilot.envoy.well_known_types import build_duration, pack
from pilot.mesh.model.service import Service

_Cluster = cluster_pb2.Cluster
RESOLVER = "envoy.network.dns_resolver.cares"


def lookup_family(
    ipv4: bool, ipv6: bool, dual_stack: bool, ipv6_only_has_ipv4: bool
) -> cluster_pb2.Cluster.DnsLookupFamily:
    """Returns which addresses a proxy that has those families asks DNS for."""
    if ipv4 and ipv6:
        return _Cluster.ALL if dual_stack else _Cluster.V4_ONLY
    if ipv6:
        return _Cluster.ALL if ipv6_only_has_ipv4 else _Cluster.V6_ONLY
    return _Cluster.V4_ONLY


@lru_cache(maxsize=8)
def _resolver(udp_max_queries: int) -> extension_pb2.TypedExtensionConfig:
    """Returns a resolver that changes its socket often: one that is used for too many queries gets answers that are not its own."""
    config = cares_dns_resolver_pb2.CaresDnsResolverConfig(
        udp_max_queries=wrappers_pb2.UInt32Value(value=udp_max_queries)
    )
    return extension_pb2.TypedExtensionConfig(name=RESOLVER, typed_config=pack(config))


def apply_dns(
    cluster: cluster_pb2.Cluster, service: Service, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> None:
    """Sets how, and how often, the endpoints are resolved."""
    family = lookup_family(traits.ipv4, traits.ipv6, defaults.dual_stack, defaults.ipv6_only_has_ipv4)
    cluster.dns_lookup_family = _Cluster.ALL if service.race_connect else family
    cluster.typed_dns_resolver_config.CopyFrom(_resolver(defaults.dns_udp_max_queries))
    cluster.dns_jitter.CopyFrom(build_duration(defaults.dns_jitter))
    cluster.dns_refresh_rate.CopyFrom(build_duration(defaults.dns_refresh_rate))
    cluster.respect_dns_ttl = True
