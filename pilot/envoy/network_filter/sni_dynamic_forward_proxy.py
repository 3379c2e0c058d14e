"""Builds the filter of TLS to hosts that are resolved by the SNI when it comes. The cluster has a DNS cache of the same name and
settings."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.common.dynamic_forward_proxy.v3 import dns_cache_pb2
from envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3 import sni_dynamic_forward_proxy_pb2

from pilot.envoy.typed import pack

NAME = "envoy.extensions.filters.network.sni_dynamic_forward_proxy"


def build_sni_dynamic_forward_proxy(port: int, cache: dns_cache_pb2.DnsCacheConfig) -> listener_components_pb2.Filter:
    """Returns the filter, which a TCP proxy follows; `port` is the one to connect to."""
    config = sni_dynamic_forward_proxy_pb2.FilterConfig(dns_cache_config=cache, port_value=port)
    return listener_components_pb2.Filter(name=NAME, typed_config=pack(config))
