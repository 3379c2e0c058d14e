"""Builds the configuration of istio.stats, the filter by which Istio's build of Envoy counts requests and connections for Prometheus."""

from __future__ import annotations

from google.protobuf import any_pb2

from pilot.envoy.durations import build_duration
from pilot.envoy.typed import pack
from pilot.mesh.model.telemetry_rules import MetricOverride, MetricRules
from protos import stats_pb2

_METRICS = {
    "REQUEST_COUNT": "requests_total",
    "REQUEST_DURATION": "request_duration_milliseconds",
    "REQUEST_SIZE": "request_bytes",
    "RESPONSE_SIZE": "response_bytes",
    "TCP_OPENED_CONNECTIONS": "tcp_connections_opened_total",
    "TCP_CLOSED_CONNECTIONS": "tcp_connections_closed_total",
    "TCP_SENT_BYTES": "tcp_sent_bytes_total",
    "TCP_RECEIVED_BYTES": "tcp_received_bytes_total",
    "GRPC_REQUEST_MESSAGES": "request_messages_total",
    "GRPC_RESPONSE_MESSAGES": "response_messages_total",
}


def build_statistics(rules: MetricRules, outbound: bool) -> any_pb2.Any:
    """Returns the configuration of one side. A sidecar knows the hosts that its workload calls, `outbound`; else a host header is a stranger's word,
    and no service is called by it."""
    built = stats_pb2.PluginConfig(
        disable_host_header_fallback=not outbound, metrics=[_build_override(o) for o in rules.overrides]
    )
    if rules.interval is not None:
        built.tcp_reporting_duration.CopyFrom(build_duration(rules.interval))
    return pack(built)


def _build_override(override: MetricOverride) -> stats_pb2.MetricConfig:
    return stats_pb2.MetricConfig(
        name=_METRICS.get(override.metric, override.metric),
        drop=override.disabled,
        dimensions={name: value for name, value in override.tags if value},
        tags_to_remove=[name for name, value in override.tags if not value],
    )
