"""Builds the filter that routes Redis traffic by its commands; it ends a chain."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.redis_proxy.v3 import redis_proxy_pb2
from google.protobuf import duration_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.network.redis_proxy"
OPERATION_TIMEOUT = duration_pb2.Duration(seconds=5)


def build_redis_proxy(stat_prefix: str, cluster: str) -> listener_components_pb2.Filter:
    """Returns the filter that sends everything to one cluster."""
    routes = redis_proxy_pb2.RedisProxy.PrefixRoutes(
        catch_all_route=redis_proxy_pb2.RedisProxy.PrefixRoutes.Route(cluster=cluster)
    )
    proxy = redis_proxy_pb2.RedisProxy(
        stat_prefix=stat_prefix,
        latency_in_micros=True,
        settings=redis_proxy_pb2.RedisProxy.ConnPoolSettings(op_timeout=OPERATION_TIMEOUT),
        prefix_routes=routes,
    )
    return listener_components_pb2.Filter(name=NAME, typed_config=pack(proxy))
