"""Extension providers of the mesh config: tracers, loggers and authorizers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pilot.config.base import Int32, Int64, OneOf, Strict, UInt32
from pilot.lib.duration import Duration

ServiceAttributeEnrichment = Literal["ISTIO_CANONICAL", "OTEL_SEMANTIC_CONVENTIONS"]
TraceContextOption = Literal["USE_B3", "USE_B3_WITH_W3C_PROPAGATION"]
TraceContext = Literal["UNSPECIFIED", "W3C_TRACE_CONTEXT", "GRPC_BIN", "CLOUD_TRACE_CONTEXT", "B3"]


class EnvoyExternalAuthorizationRequestBody(Strict, frozen=True):
    max_request_bytes: UInt32 = 0
    allow_partial_message: bool = False
    pack_as_bytes: bool = False


class EnvoyExternalAuthorizationHttpProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    timeout: Duration | None = None
    path_prefix: str = ""
    fail_open: bool = False
    clear_route_cache: bool = False
    status_on_error: str = ""
    include_headers_in_check: tuple[str, ...] = ()  # deprecated
    include_request_headers_in_check: tuple[str, ...] = ()
    include_additional_headers_in_check: dict[str, str] = {}
    include_request_body_in_check: EnvoyExternalAuthorizationRequestBody | None = None
    headers_to_upstream_on_allow: tuple[str, ...] = ()
    headers_to_downstream_on_deny: tuple[str, ...] = ()
    headers_to_downstream_on_allow: tuple[str, ...] = ()


class EnvoyExternalAuthorizationGrpcProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    timeout: Duration | None = None
    fail_open: bool = False
    clear_route_cache: bool = False
    status_on_error: str = ""
    include_request_body_in_check: EnvoyExternalAuthorizationRequestBody | None = None


class ZipkinTracingProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    max_tag_length: UInt32 = 0
    enable_64bit_trace_id: bool = False
    path: str = ""
    trace_context_option: TraceContextOption = "USE_B3"
    timeout: Duration | None = None
    headers: tuple[HttpHeader, ...] = ()


class LightstepTracingProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    access_token: str = ""
    max_tag_length: UInt32 = 0


class DatadogTracingProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    max_tag_length: UInt32 = 0


class SkyWalkingTracingProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    access_token: str = ""


class Logging(Strict, frozen=True):
    labels: dict[str, str] = {}


class StackdriverProvider(Strict, frozen=True):
    debug: bool = False  # deprecated
    max_number_of_attributes: Int64 | None = None  # deprecated
    max_number_of_annotations: Int64 | None = None  # deprecated
    max_number_of_message_events: Int64 | None = None  # deprecated
    max_tag_length: UInt32 = 0
    logging: Logging | None = None


class OpenCensusAgentTracingProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    context: tuple[TraceContext, ...] = ()
    max_tag_length: UInt32 = 0


class PrometheusMetricsProvider(Strict, frozen=True):
    pass


class LogFormat(OneOf, frozen=True):
    groups: ClassVar = (("text", "labels"),)

    text: str | None = None
    labels: dict[str, Any] | None = None


class EnvoyFileAccessLogProvider(Strict, frozen=True):
    path: str = ""
    log_format: LogFormat | None = None
    omit_empty_values: bool = False


class EnvoyHttpGrpcV3LogProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    log_name: str = ""
    filter_state_objects_to_log: tuple[str, ...] = ()
    additional_request_headers_to_log: tuple[str, ...] = ()
    additional_response_headers_to_log: tuple[str, ...] = ()
    additional_response_trailers_to_log: tuple[str, ...] = ()


class EnvoyTcpGrpcV3LogProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    log_name: str = ""
    filter_state_objects_to_log: tuple[str, ...] = ()


class OtelLogFormat(Strict, frozen=True):
    text: str = ""
    labels: dict[str, Any] | None = None


class EnvoyOpenTelemetryLogProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    log_name: str = ""
    log_format: OtelLogFormat | None = None


class DynatraceApi(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    http: HttpService | None = None


class DynatraceSampler(Strict, frozen=True):
    tenant: str = ""
    cluster_id: Int32 = 0
    root_spans_per_minute: UInt32 = 0
    http_service: DynatraceApi | None = None


class OpenTelemetryTracingProvider(Strict, frozen=True):
    service: str = ""
    port: UInt32 = 0
    max_tag_length: UInt32 = 0
    http: HttpService | None = None
    grpc: GrpcService | None = None
    resource_detectors: ResourceDetectors | None = None
    service_attribute_enrichment: ServiceAttributeEnrichment = "ISTIO_CANONICAL"
    dynatrace_sampler: DynatraceSampler | None = None


class SDSProvider(Strict, frozen=True):
    name: str = ""
    service: str = ""
    port: UInt32 = 0


class HttpService(Strict, frozen=True):
    path: str = ""
    timeout: Duration | None = None
    headers: tuple[HttpHeader, ...] = ()


class HttpHeader(OneOf, frozen=True):
    groups: ClassVar = (("value", "env_name"),)

    name: str = ""
    value: str | None = None
    env_name: str | None = None


class EnvironmentResourceDetector(Strict, frozen=True):
    pass


class DynatraceResourceDetector(Strict, frozen=True):
    pass


class ResourceDetectors(Strict, frozen=True):
    environment: EnvironmentResourceDetector | None = None
    dynatrace: DynatraceResourceDetector | None = None


class GrpcService(Strict, frozen=True):
    timeout: Duration | None = None
    initial_metadata: tuple[HttpHeader, ...] = ()


class ExtensionProvider(OneOf, frozen=True):
    groups: ClassVar = (
        (
            "envoy_ext_authz_http",
            "envoy_ext_authz_grpc",
            "zipkin",
            "lightstep",
            "datadog",
            "stackdriver",
            "opencensus",
            "skywalking",
            "opentelemetry",
            "prometheus",
            "envoy_file_access_log",
            "envoy_http_als",
            "envoy_tcp_als",
            "envoy_otel_als",
            "sds",
        ),
    )

    name: str = ""
    envoy_ext_authz_http: EnvoyExternalAuthorizationHttpProvider | None = None
    envoy_ext_authz_grpc: EnvoyExternalAuthorizationGrpcProvider | None = None
    zipkin: ZipkinTracingProvider | None = None
    lightstep: LightstepTracingProvider | None = None  # deprecated
    datadog: DatadogTracingProvider | None = None
    stackdriver: StackdriverProvider | None = None
    opencensus: OpenCensusAgentTracingProvider | None = None  # deprecated
    skywalking: SkyWalkingTracingProvider | None = None
    opentelemetry: OpenTelemetryTracingProvider | None = None
    prometheus: PrometheusMetricsProvider | None = None
    envoy_file_access_log: EnvoyFileAccessLogProvider | None = None
    envoy_http_als: EnvoyHttpGrpcV3LogProvider | None = None
    envoy_tcp_als: EnvoyTcpGrpcV3LogProvider | None = None
    envoy_otel_als: EnvoyOpenTelemetryLogProvider | None = None
    sds: SDSProvider | None = None
