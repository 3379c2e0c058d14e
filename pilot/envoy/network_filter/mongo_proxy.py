"""Builds the filter for statistics of MongoDB traffic."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.mongo_proxy.v3 import mongo_proxy_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.network.mongo_proxy"


def build_mongo_proxy(stat_prefix: str) -> listener_components_pb2.Filter:
    """Returns the filter, which a TCP proxy follows."""
    return listener_components_pb2.Filter(
        name=NAME, typed_config=pack(mongo_proxy_pb2.MongoProxy(stat_prefix=stat_prefix))
    )
