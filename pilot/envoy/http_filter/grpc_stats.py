"""Builds the filter that counts gRPC messages, for telemetry: kept as filter state, not as Envoy's statistics of every method."""

from __future__ import annotations

from envoy.extensions.filters.http.grpc_stats.v3 import config_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.http.grpc_stats"
GRPC_STATS = hcm_pb2.HttpFilter(
    name=NAME,
    typed_config=pack(
        config_pb2.FilterConfig(emit_filter_state=True, stats_for_all_methods=wrappers_pb2.BoolValue(value=False))
    ),
)
