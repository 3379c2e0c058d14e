"""Warnings about fields of the mesh config that are valid but have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pilot.config.base import json_name
from pilot.config.mesh.extension_provider import (
    EnvoyExternalAuthorizationGrpcProvider,
    EnvoyExternalAuthorizationHttpProvider,
    ExtensionProvider,
    SkyWalkingTracingProvider,
)
from pilot.config.mesh.mesh_config import DEFAULT_PROVIDERS, CertificateData, ConfigSource, MeshConfig
from pilot.config.mesh.proxy_config import ConnectionSettings, ProxyConfig
from pilot.config.mesh.tracing import Tracing
from pilot.config.problem import Problem, warning

_BOOTSTRAP = "is not sent to proxies: it belongs to their bootstrap"
_INJECTION = "is not sent to proxies: it is used at injection"
_PROVIDER = "is not supported: proxies do not use this provider"
_NOT_PASSED = "has no effect: it is not sent to proxies"
_UNSUPPORTED = "is not supported"
_DEPRECATED = "is deprecated and has no effect"


def _fields(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


# The fields without effect and the reason, keyed by struct
WITHOUT_EFFECT: Mapping[type[msgspec.Struct], Mapping[str, str]] = {
    MeshConfig: {
        **_fields(_UNSUPPORTED, "hbone_idle_timeout", "ca"),
        **_fields(_UNSUPPORTED, "ingress_class", "ingress_service", "ingress_controller_mode", "ingress_selector"),
        **_fields(_INJECTION, "enable_prometheus_merge"),
        **_fields(_DEPRECATED, "certificates", "verify_certificate_at_client"),
    },
    ConfigSource: _fields("has no effect: sources serve all of their resources", "subscribed_resources"),
    CertificateData: _fields(_NOT_PASSED, "spiffe_bundle_url"),
    ProxyConfig: {
        **_fields(
            _BOOTSTRAP,
            "config_path",
            "binary_path",
            "service_cluster",
            "tracing_service_name",
            "drain_duration",
            "statsd_udp_address",
        ),
        **_fields(
            _BOOTSTRAP,
            "proxy_admin_port",
            "custom_config_file",
            "stat_name_length",
            "concurrency",
            "proxy_bootstrap_template_path",
        ),
        **_fields(
            _BOOTSTRAP,
            "control_plane_auth_policy",
            "envoy_access_log_service",
            "envoy_metrics_service",
            "runtime_values",
            "status_port",
        ),
        **_fields(
            _BOOTSTRAP, "extra_stat_tags", "termination_drain_duration", "proxy_stats_matcher", "file_flush_interval"
        ),
        **_fields(_BOOTSTRAP, "file_flush_min_size_kb", "stats_compression", "mesh_id"),
        **_fields(
            _INJECTION,
            "interception_mode",
            "proxy_metadata",
            "readiness_probe",
            "hold_application_until_proxy_starts",
            "image",
        ),
        **_fields(_UNSUPPORTED, "ca_certificates_pem"),
        **_fields(
            _DEPRECATED,
            "discovery_refresh_delay",
            "zipkin_address",
            "envoy_metrics_service_address",
            "availability_zone",
            "sds",
        ),
    },
    ConnectionSettings: {
        **_fields(_UNSUPPORTED, "cluster_per_connection_buffer_limit_bytes", "listener_connection_limit"),
        **_fields(_BOOTSTRAP, "global_downstream_connection_limit"),
    },
    Tracing: _fields(_BOOTSTRAP, "zipkin", "lightstep", "datadog", "stackdriver", "open_census_agent", "tls_settings"),
    EnvoyExternalAuthorizationHttpProvider: _fields(_NOT_PASSED, "clear_route_cache"),
    EnvoyExternalAuthorizationGrpcProvider: _fields(_NOT_PASSED, "clear_route_cache"),
    SkyWalkingTracingProvider: _fields(_NOT_PASSED, "access_token"),
    ExtensionProvider: _fields(_PROVIDER, "lightstep", "stackdriver", "opencensus"),
}


def find_without_effect(value: Any, path: str = "") -> Iterator[Problem]:
    """Yield a warning for each field that is set but has no effect, in a message and its nested messages."""
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if item not in DEFAULT_PROVIDERS:
                yield from find_without_effect(item, f"{path}[{index}]")
    if not isinstance(value, msgspec.Struct):
        return
    reasons = WITHOUT_EFFECT.get(type(value), {})
    for field in msgspec.structs.fields(type(value)):
        field_value, place = getattr(value, field.name), ".".join(filter(None, (path, json_name(field.name))))
        if field_value == (field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()):
            continue
        if (reason := reasons.get(field.name)) is not None:
            yield warning("no-effect", place, f"{json_name(field.name)} {reason}")
        else:
            yield from find_without_effect(field_value, place)
