"""Builds istio.stats for connections."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_components_pb2
from google.protobuf import any_pb2

NAME = "istio.stats"


def build_network_stats(config: any_pb2.Any) -> listener_components_pb2.Filter:
    """Returns the filter; `config` is of `translate.statistics`."""
    return listener_components_pb2.Filter(name=NAME, typed_config=config)
