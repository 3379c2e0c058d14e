"""The extensions and versions that a proxy needs for telemetry. A proxy does not receive configuration that it does not
support.

Envoy reports its version and compiled-in extensions in its node. Istio's pilot-agent omits the extensions, because
Istio's build has all of them. ISTIO_VERSION in the node's metadata is the version of the configuration that a proxy
supports. A missing version is treated as the newest one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from pilot.mesh.model.proxy import Proxy

STATS = "istio.stats"
FILE_LOG = "envoy.access_loggers.file"
REQUEST_LOG = "envoy.access_loggers.http_grpc"
CONNECTION_LOG = "envoy.tcp_grpc_access_log"
OPEN_TELEMETRY_LOG = "envoy.access_loggers.open_telemetry"
CEL_FILTER = "envoy.access_loggers.extension_filters.cel"
ZIPKIN = "envoy.tracers.zipkin"
DATADOG = "envoy.tracers.datadog"
SKYWALKING = "envoy.tracers.skywalking"
OPEN_TELEMETRY = "envoy.tracers.opentelemetry"
DETECTOR = "envoy.tracers.opentelemetry.resource_detectors."
DYNATRACE_SAMPLER = "envoy.tracers.opentelemetry.samplers.dynatrace"
ZIPKIN_ENDPOINT = "collector_service of Zipkin"
ZIPKIN_CONTEXT = "trace_context_option of Zipkin"
FORMATTED_TAG = "value of custom tags"
PROPAGATION = "no_context_propagation"

Version = tuple[int, int]


class TelemetryRequirement(NamedTuple):
    """Features that a proxy must have: at least one of `extensions`, and the minimum versions.

    The minimum versions apply only to proxies that report their versions. An extension is the name or the type of an
    Envoy extension.
    """

    extensions: frozenset[str] = frozenset()
    istio: Version = (0, 0)
    envoy: Version = (0, 0)


def _extension(*names: str) -> TelemetryRequirement:
    return TelemetryRequirement(frozenset(names))


_LOGGERS, _TRACE = "envoy.extensions.access_loggers", "envoy.config.trace.v3"
_OTEL = "envoy.extensions.tracers.opentelemetry"
TELEMETRY_REQUIREMENTS: Mapping[str, TelemetryRequirement] = {
    STATS: _extension("stats.PluginConfig", STATS),
    FILE_LOG: _extension(f"{_LOGGERS}.file.v3.FileAccessLog", FILE_LOG),
    REQUEST_LOG: _extension(f"{_LOGGERS}.grpc.v3.HttpGrpcAccessLogConfig", REQUEST_LOG),
    CONNECTION_LOG: _extension(f"{_LOGGERS}.grpc.v3.TcpGrpcAccessLogConfig", CONNECTION_LOG),
    OPEN_TELEMETRY_LOG: _extension(f"{_LOGGERS}.open_telemetry.v3.OpenTelemetryAccessLogConfig", OPEN_TELEMETRY_LOG),
    CEL_FILTER: _extension(f"{_LOGGERS}.filters.cel.v3.ExpressionFilter", CEL_FILTER),
    ZIPKIN: _extension(f"{_TRACE}.ZipkinConfig", ZIPKIN),
    DATADOG: _extension(f"{_TRACE}.DatadogConfig", DATADOG),
    SKYWALKING: _extension(f"{_TRACE}.SkyWalkingConfig", SKYWALKING),
    OPEN_TELEMETRY: _extension(f"{_TRACE}.OpenTelemetryConfig", OPEN_TELEMETRY),
    f"{DETECTOR}environment": _extension(
        f"{_OTEL}.resource_detectors.v3.EnvironmentResourceDetectorConfig", f"{DETECTOR}environment"
    ),
    f"{DETECTOR}dynatrace": _extension(
        f"{_OTEL}.resource_detectors.v3.DynatraceResourceDetectorConfig", f"{DETECTOR}dynatrace"
    ),
    DYNATRACE_SAMPLER: _extension(f"{_OTEL}.samplers.v3.DynatraceSamplerConfig", DYNATRACE_SAMPLER),
    ZIPKIN_ENDPOINT: TelemetryRequirement(istio=(1, 29), envoy=(1, 36)),
    ZIPKIN_CONTEXT: TelemetryRequirement(istio=(1, 28), envoy=(1, 36)),
    FORMATTED_TAG: TelemetryRequirement(istio=(1, 29), envoy=(1, 37)),
    PROPAGATION: TelemetryRequirement(istio=(1, 30), envoy=(1, 38)),
}
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:[^0-9].*)?", re.ASCII)


def unsupported_telemetry(proxy: Proxy) -> frozenset[str]:
    """Return the names in `TELEMETRY_REQUIREMENTS` whose requirements a proxy does not meet."""
    return _unmet_requirements(proxy.extensions, _parse(proxy.version), proxy.envoy)


@functools.lru_cache(256)
def _unmet_requirements(
    extensions: frozenset[str] | None, istio: Version | None, envoy: Version | None
) -> frozenset[str]:
    return frozenset(
        name for name, need in TELEMETRY_REQUIREMENTS.items() if not _is_met(need, extensions, istio, envoy)
    )


def _is_met(
    need: TelemetryRequirement, extensions: frozenset[str] | None, istio: Version | None, envoy: Version | None
) -> bool:
    if need.extensions and extensions is not None and need.extensions.isdisjoint(extensions):
        return False
    return (istio is None or istio >= need.istio) and (envoy is None or envoy >= need.envoy)


def _parse(version: str) -> Version | None:
    """Return the first two numbers of a version, or None if it is malformed."""
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2])) if match is not None else None
