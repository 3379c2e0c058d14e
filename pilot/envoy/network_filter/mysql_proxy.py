"""Builds the filter for statistics of MySQL traffic. It is in Envoy's contrib builds and Istio's, not in stock ones."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2

from pilot.envoy.typed import pack
from protos import mysql_proxy_pb2

NAME = "envoy.filters.network.mysql_proxy"


def build_mysql_proxy(stat_prefix: str) -> listener_components_pb2.Filter:
    """Returns the filter, which a TCP proxy follows."""
    return listener_components_pb2.Filter(
        name=NAME, typed_config=pack(mysql_proxy_pb2.MySQLProxy(stat_prefix=stat_prefix))
    )
