"""The filter that resolves hosts at request time.

The cluster that the route selects has a DNS cache with the same name and settings.
"""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, extension_pb2
from envoy.extensions.common.dynamic_forward_proxy.v3 import dns_cache_pb2
from envoy.extensions.filters.http.dynamic_forward_proxy.v3 import dynamic_forward_proxy_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.network.dns_resolver.cares.v3 import cares_dns_resolver_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy import names
from pilot.envoy.well_known_types import pack

NAME = "envoy.filters.http.dynamic_forward_proxy"


def build_dynamic_forward_proxy(cache: dns_cache_pb2.DnsCacheConfig) -> hcm_pb2.HttpFilter:
    """Return the filter that uses a DNS cache."""
    return hcm_pb2.HttpFilter(
        name=NAME, typed_config=pack(dynamic_forward_proxy_pb2.FilterConfig(dns_cache_config=cache))
    )


def build_dns_cache(name: str, family: cluster_pb2.Cluster.DnsLookupFamily) -> dns_cache_pb2.DnsCacheConfig:
    """Return the DNS cache for a wildcard host that is resolved at request time. `names.dns_cache` returns its name."""
    return dns_cache_pb2.DnsCacheConfig(name=name, dns_lookup_family=family)


def build_allow_any_dns_cache(
    family: cluster_pb2.Cluster.DnsLookupFamily, max_hosts: int, dns_proxy: str
) -> dns_cache_pb2.DnsCacheConfig:
    """Return the DNS cache for the outbound traffic policy ALLOW_ANY_DYNAMIC_DNS.

    `dns_proxy` is the "host:port" of the resolver to use instead of the system's resolver.
    """
    cache = dns_cache_pb2.DnsCacheConfig(
        name=names.ALLOW_ANY_DNS_CACHE, dns_lookup_family=family, max_hosts=wrappers_pb2.UInt32Value(value=max_hosts)
    )
    if dns_proxy:
        host, _, port = dns_proxy.rpartition(":")
        address = address_pb2.Address(socket_address=address_pb2.SocketAddress(address=host, port_value=int(port)))
        resolver = cares_dns_resolver_pb2.CaresDnsResolverConfig(resolvers=[address])
        cache.typed_dns_resolver_config.CopyFrom(
            extension_pb2.TypedExtensionConfig(name="envoy.network.dns_resolver.cares", typed_config=pack(resolver))
        )
    return cache
