"""Network filters that only have a few settings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.common.dynamic_forward_proxy.v3 import dns_cache_pb2
from envoy.extensions.filters.network.mongo_proxy.v3 import mongo_proxy_pb2
from envoy.extensions.filters.network.redis_proxy.v3 import redis_proxy_pb2
from envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3 import sni_dynamic_forward_proxy_pb2
from google.protobuf import any_pb2, duration_pb2

from pilot.envoy.well_known_types import pack, pack_struct
from protos import mysql_proxy_pb2

METADATA_EXCHANGE_FILTER = "istio.metadata_exchange"
TUNNEL_PEER_FILTER = "upstream_hbone_peer_metadata"
BAGGAGE = "io.istio.baggage"  # filter state: the description of the proxy's own workload or of the downstream peer
_METADATA_EXCHANGE_TYPE = "envoy.tcp.metadataexchange.config.MetadataExchange"
_REDIS_TIMEOUT = duration_pb2.Duration(seconds=5)

TUNNEL_PEER = listener_components_pb2.Filter(
    name=TUNNEL_PEER_FILTER,
    typed_config=pack_struct("envoy.extensions.network_filters.peer_metadata.Config", {"baggage_key": BAGGAGE}),
)
"""The filter that reads the header `baggage` of the response to a CONNECT request. A TCP proxy must follow it."""


def build_mongo_proxy(stat_prefix: str) -> listener_components_pb2.Filter:
    """Return the filter that reports statistics on MongoDB traffic. A TCP proxy must follow it."""
    config = mongo_proxy_pb2.MongoProxy(stat_prefix=stat_prefix)
    return listener_components_pb2.Filter(name="envoy.filters.network.mongo_proxy", typed_config=pack(config))


def build_mysql_proxy(stat_prefix: str) -> listener_components_pb2.Filter:
    """Return the filter that reports statistics on MySQL traffic. A TCP proxy must follow it.

    Envoy's contrib builds and Istio's builds contain this filter. Stock builds do not.
    """
    config = mysql_proxy_pb2.MySQLProxy(stat_prefix=stat_prefix)
    return listener_components_pb2.Filter(name="envoy.filters.network.mysql_proxy", typed_config=pack(config))


def build_redis_proxy(stat_prefix: str, cluster: str) -> listener_components_pb2.Filter:
    """Return the terminal filter that sends all Redis commands to one cluster."""
    routes = redis_proxy_pb2.RedisProxy.PrefixRoutes(
        catch_all_route=redis_proxy_pb2.RedisProxy.PrefixRoutes.Route(cluster=cluster)
    )
    proxy = redis_proxy_pb2.RedisProxy(
        stat_prefix=stat_prefix,
        latency_in_micros=True,
        settings=redis_proxy_pb2.RedisProxy.ConnPoolSettings(op_timeout=_REDIS_TIMEOUT),
        prefix_routes=routes,
    )
    return listener_components_pb2.Filter(name="envoy.filters.network.redis_proxy", typed_config=pack(proxy))


def build_sni_dynamic_forward_proxy(port: int, cache: dns_cache_pb2.DnsCacheConfig) -> listener_components_pb2.Filter:
    """Return the filter that resolves the SNI of a TLS connection, with `port` as the destination port.

    A TCP proxy must follow it. The TCP proxy's cluster has a DNS cache with the same name and settings.
    """
    config = sni_dynamic_forward_proxy_pb2.FilterConfig(dns_cache_config=cache, port_value=port)
    return listener_components_pb2.Filter(
        name="envoy.extensions.filters.network.sni_dynamic_forward_proxy", typed_config=pack(config)
    )


@lru_cache(maxsize=64)
def build_metadata_exchange_config(labels: tuple[str, ...] = ()) -> any_pb2.Any:
    """Return the configuration of istio.metadata_exchange, for listeners and for the upstream filters of clusters.

    After ALPN has selected istio-peer-exchange, the filter sends metadata about the proxy to the peer over TCP.
    `labels` are additional workload labels to exchange.
    """
    fields: dict[str, Any] = {"protocol": "istio-peer-exchange", "enable_discovery": True}
    if labels:
        fields["additional_labels"] = sorted(set(labels))
    return pack_struct(_METADATA_EXCHANGE_TYPE, fields)


@lru_cache(maxsize=64)
def build_metadata_exchange(labels: tuple[str, ...] = ()) -> listener_components_pb2.Filter:
    """Return the filter for an inbound filter chain. On the outbound side, clusters contain the filter."""
    return listener_components_pb2.Filter(
        name=METADATA_EXCHANGE_FILTER, typed_config=build_metadata_exchange_config(labels)
    )
