"""The istio.stats filters of one side of a proxy. They report metrics to Prometheus, as configured by Telemetries.

Only Istio's builds of Envoy contain this filter.
"""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2

from pilot.config.mesh.extension_provider import ExtensionProvider
from pilot.derive import derived
from pilot.envoy.well_known_types import build_duration, pack
from pilot.mesh.model.facets import ListeningFacet, TelemetryFacet
from pilot.mesh.model.telemetry_features import STATS
from pilot.mesh.model.telemetry_rules import MetricOverride, MetricRules
from pilot.mesh.tables.database import Mesh
from pilot.mesh.telemetry.providers import telemetry_provider
from protos import stats_pb2

_FILTER = "istio.stats"
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


def http_stats_filters(db: Mesh, listening: ListeningFacet) -> list[hcm_pb2.HttpFilter]:
    """Return the filters that report requests. Not memoised."""
    return [hcm_pb2.HttpFilter(name=_FILTER, typed_config=config) for config in _stats_configs(db, listening)]


def network_stats_filters(db: Mesh, listening: ListeningFacet) -> list[listener_components_pb2.Filter]:
    """Return the filters that report connections. Not memoised."""
    configs = _stats_configs(db, listening)
    return [listener_components_pb2.Filter(name=_FILTER, typed_config=config) for config in configs]


def _stats_configs(db: Mesh, listening: ListeningFacet) -> tuple[any_pb2.Any, ...]:
    """Return the configurations of the filters, or () if the proxy's build lacks the filter. Not memoised."""
    return () if STATS in listening.unsupported_telemetry else _side_stats(db, listening.telemetry, listening.side)


@derived
def _side_stats(db: Mesh, telemetry: TelemetryFacet, side: str) -> tuple[any_pb2.Any, ...]:
    return tuple(_build_configs(db, telemetry, side))


def _build_configs(db: Mesh, telemetry: TelemetryFacet, side: str) -> Iterator[any_pb2.Any]:
    for rules in telemetry.metrics:
        provider = telemetry_provider(db, rules.provider)
        if isinstance(provider, ExtensionProvider) and provider.prometheus is not None:
            yield build_stats_config(rules, side)


def build_stats_config(rules: MetricRules, side: str) -> any_pb2.Any:
    """Return the filter configuration for one side of a proxy.

    Only a client's sidecar may report the host header as the name of a service. Elsewhere, the client could choose the
    value. A waypoint reports as such, so that its requests are not counted as those of the server.
    """
    config = stats_pb2.PluginConfig(
        disable_host_header_fallback=side != "outbound",
        metrics=[_build_override(override) for override in rules.overrides],
        reporter=stats_pb2.SERVER_GATEWAY if side == "waypoint" else stats_pb2.UNSPECIFIED,
    )
    if rules.interval is not None:
        config.tcp_reporting_duration.CopyFrom(build_duration(rules.interval))
    return pack(config)


def _build_override(override: MetricOverride) -> stats_pb2.MetricConfig:
    return stats_pb2.MetricConfig(
        name=_METRICS.get(override.metric, override.metric),
        drop=override.disabled,
        dimensions={name: value for name, value in override.tags if value},
        tags_to_remove=[name for name, value in override.tags if not value],
    )
