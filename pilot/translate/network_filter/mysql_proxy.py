"""Statistics of MySQL traffic. The filter is one of Envoy's contrib builds, whose messages no package carries."""
from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from google.protobuf import any_pb2

from pilot.translate.resource import length_delimited
from pilot.translate.typed import TYPE_PREFIX

NAME = "envoy.filters.network.mysql_proxy"
CONFIG = "envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy"
_STAT_PREFIX = 1  # field number in CONFIG


def build_mysql_proxy(stat_prefix: str) -> listener_components_pb2.Filter:
    """A TCP proxy follows it."""
    config = any_pb2.Any(type_url=TYPE_PREFIX + CONFIG, value=length_delimited(_STAT_PREFIX, stat_prefix.encode()))
    return listener_components_pb2.Filter(name=NAME, typed_config=config)
