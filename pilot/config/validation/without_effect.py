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
from pilot.config.mesh.proxy_config import ConnectionSettings, ProxyConfig, RemoteService
from pilot.config.mesh.tracing import Tracing
from pilot.config.problem import Problem, warning

_AGENT = "has no effect with the agent of pyistiod: only Istio's agent uses it"
_PROVIDER = "is not supported: proxies do not use this provider"
_NOT_PASSED = "has no effect: it is not sent to proxies"
_UNSUPPORTED = "is not supported"
_DEPRECATED = "is deprecated and has no effect"


def _fields(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


# The fields without effect and the reason, keyed by struct
WITHOUT_EFFECT: Mapping[type[msgspec.Struct], Mapping[str, str]] = {
    MeshConfig: {
        **_fields(_UNSUPPORTED, "ca"),
        **_fields(_DEPRECATED, "certificates", "verify_certificate_at_client"),
    },
    ConfigSource: _fields("has no effect: sources serve all of their resources", "subscribed_resources"),
    CertificateData: _fields(_NOT_PASSED, "spiffe_bundle_url"),
    ProxyConfig: {
        **_fields(_AGENT, "statsd_udp_address", "proxy_bootstrap_template_path", "readiness_probe"),
        **_fields(_UNSUPPORTED, "ca_certificates_pem"),
        **_fields(
            _DEPRECATED,
            "stat_name_length",
            "discovery_refresh_delay",
            "envoy_metrics_service_address",
            "availability_zone",
            "sds",
        ),
    },
    ConnectionSettings: _fields(_UNSUPPORTED, "cluster_per_connection_buffer_limit_bytes", "listener_connection_limit"),
    RemoteService: _fields(_AGENT, "tcp_keepalive"),
    Tracing: _fields(_AGENT, "lightstep", "stackdriver", "open_census_agent", "tls_settings"),
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
