"""Builds istio.stats for requests."""

from __future__ import annotations

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2

NAME = "istio.stats"


def build_http_stats(config: any_pb2.Any) -> hcm_pb2.HttpFilter:
    """Returns the filter; `config` is of `translate.statistics`."""
    return hcm_pb2.HttpFilter(name=NAME, typed_config=config)
