"""Builds the configuration of tracers, which report spans. Their builders receive the workload's tags."""

from __future__ import annotations

from typing import Literal

import msgspec
from envoy.config.core.v3 import extension_pb2
from envoy.config.trace.v3 import datadog_pb2, opentelemetry_pb2, skywalking_pb2, zipkin_pb2
from envoy.extensions.tracers.opentelemetry.resource_detectors.v3 import (
    dynatrace_resource_detector_pb2,
    environment_resource_detector_pb2,
)
from envoy.extensions.tracers.opentelemetry.samplers.v3 import dynatrace_sampler_pb2
from google.protobuf import any_pb2, wrappers_pb2

from pilot.envoy.names import outbound_cluster
from pilot.envoy.tracing.collectors import GrpcCollector, HttpCollector
from pilot.envoy.well_known_types import pack
from pilot.mesh.model.facets import SpanTagsFacet
from pilot.mesh.registry.mesh_services import ProviderPort

Detector = Literal["environment", "dynatrace"]
_SAMPLER_NAME = "envoy.tracers.opentelemetry.samplers.dynatrace"
_DETECTORS = {
    kind: extension_pb2.TypedExtensionConfig(
        name=f"envoy.tracers.opentelemetry.resource_detectors.{kind}", typed_config=pack(config)
    )
    for kind, config in (
        ("environment", environment_resource_detector_pb2.EnvironmentResourceDetectorConfig()),
        ("dynatrace", dynatrace_resource_detector_pb2.DynatraceResourceDetectorConfig()),
    )
}


class ZipkinTracer(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Reports spans in Zipkin's JSON format.

    If `supports_collector_service` is False, Envoy receives the collector's path, host name and cluster in separate
    fields.
    """

    provider: ProviderPort
    collector: HttpCollector
    path: str
    supports_collector_service: bool = True
    short_ids: bool = False
    w3c: bool = False

    name = "envoy.tracers.zipkin"

    def build(self, _: SpanTagsFacet) -> any_pb2.Any:
        config = zipkin_pb2.ZipkinConfig(
            collector_endpoint_version=zipkin_pb2.ZipkinConfig.HTTP_JSON,
            trace_id_128bit=not self.short_ids,
            shared_span_context=wrappers_pb2.BoolValue(value=False),
        )
        if self.supports_collector_service:
            config.collector_service.CopyFrom(self.collector.build())
        else:
            config.collector_cluster, config.collector_endpoint, config.collector_hostname = (
                self.collector.cluster,
                self.path,
                self.provider.hostname,
            )
        if self.w3c:
            config.trace_context_option = zipkin_pb2.ZipkinConfig.USE_B3_WITH_W3C_PROPAGATION
        return pack(config)


class DatadogTracer(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Reports spans to Datadog's agent."""

    provider: ProviderPort

    name = "envoy.tracers.datadog"

    def build(self, workload: SpanTagsFacet) -> any_pb2.Any:
        return pack(
            datadog_pb2.DatadogConfig(
                collector_cluster=outbound_cluster(self.provider.port, "", self.provider.hostname),
                collector_hostname=self.provider.hostname,
                service_name=workload.node_cluster,
            )
        )


class SkyWalkingTracer(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Reports spans to SkyWalking's collector."""

    collector: GrpcCollector

    name = "envoy.tracers.skywalking"

    def build(self, _: SpanTagsFacet) -> any_pb2.Any:
        return pack(skywalking_pb2.SkyWalkingConfig(grpc_service=self.collector.build()))


class DynatraceSamplerSettings(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Settings of Dynatrace's sampler, which requests the sampling configuration from Dynatrace."""

    collector: HttpCollector
    tenant: str
    cluster_id: int
    root_spans_per_minute: int

    def build(self) -> extension_pb2.TypedExtensionConfig:
        config = dynatrace_sampler_pb2.DynatraceSamplerConfig(
            tenant=self.tenant,
            cluster_id=self.cluster_id,
            root_spans_per_minute=self.root_spans_per_minute,
            http_service=self.collector.build(),
        )
        return extension_pb2.TypedExtensionConfig(name=_SAMPLER_NAME, typed_config=pack(config))


class OpenTelemetryTracer(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Reports spans over OTLP.

    If `conventional` is set, the service name follows OpenTelemetry's conventions for Kubernetes. Otherwise it is the
    cluster in the proxy's node.
    """

    collector: HttpCollector | GrpcCollector
    conventional: bool = False
    detectors: tuple[Detector, ...] = ()
    sampler: DynatraceSamplerSettings | None = None

    name = "envoy.tracers.opentelemetry"

    def build(self, workload: SpanTagsFacet) -> any_pb2.Any:
        config = opentelemetry_pb2.OpenTelemetryConfig(
            service_name=workload.conventional_service if self.conventional else workload.node_cluster,
            resource_detectors=[_DETECTORS[kind] for kind in self.detectors],
        )
        if isinstance(self.collector, HttpCollector):
            config.http_service.CopyFrom(self.collector.build())
        else:
            config.grpc_service.CopyFrom(self.collector.build())
        if self.sampler is not None:
            config.sampler.CopyFrom(self.sampler.build())
        return pack(config)


Tracer = ZipkinTracer | DatadogTracer | SkyWalkingTracer | OpenTelemetryTracer
