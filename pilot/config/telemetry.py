"""telemetry.istio.io Telemetry. https://istio.io/latest/docs/reference/config/telemetry/"""

from __future__ import annotations

from typing import ClassVar, Literal

from pilot.config.base import OneOf, Strict
from pilot.config.mesh.tracing import CustomTag
from pilot.config.selector import PolicyTargetReference, WorkloadSelector
from pilot.lib.duration import Duration

WorkloadMode = Literal["CLIENT_AND_SERVER", "CLIENT", "SERVER"]
IstioMetric = Literal[
    "ALL_METRICS",
    "REQUEST_COUNT",
    "REQUEST_DURATION",
    "REQUEST_SIZE",
    "RESPONSE_SIZE",
    "TCP_OPENED_CONNECTIONS",
    "TCP_CLOSED_CONNECTIONS",
    "TCP_SENT_BYTES",
    "TCP_RECEIVED_BYTES",
    "GRPC_REQUEST_MESSAGES",
    "GRPC_RESPONSE_MESSAGES",
]
TagOperation = Literal["UPSERT", "REMOVE"]


class Telemetry(Strict, frozen=True):
    """Configures the metrics, access logs and traces of workloads."""

    selector: WorkloadSelector | None = None
    target_ref: PolicyTargetReference | None = None
    target_refs: tuple[PolicyTargetReference, ...] = ()
    tracing: tuple[TelemetryTracing, ...] = ()
    metrics: tuple[Metrics, ...] = ()
    access_logging: tuple[AccessLogging, ...] = ()


class ProviderRef(Strict, frozen=True):
    name: str = ""


class ModeSelector(Strict, frozen=True):
    mode: WorkloadMode = "CLIENT_AND_SERVER"


class TelemetryTracing(Strict, frozen=True):
    match: ModeSelector | None = None
    providers: tuple[ProviderRef, ...] = ()
    random_sampling_percentage: float | None = None
    disable_span_reporting: bool | None = None
    custom_tags: dict[str, SpanTag] = {}
    use_request_id_for_trace_sampling: bool | None = None
    enable_istio_tags: bool | None = None
    disable_context_propagation: bool | None = None


class SpanTag(CustomTag, frozen=True):
    """A span tag. Unlike a tag in the proxy config, its value may be an access log format string."""

    groups: ClassVar[tuple[tuple[str, ...], ...]] = (("literal", "environment", "header", "formatter"),)

    formatter: Formatter | None = None

    @property
    def is_whole(self) -> bool:
        """True if the tag has a source for its value."""
        return bool(self.formatter.value) if self.formatter is not None else super().is_whole


class Formatter(Strict, frozen=True):
    value: str = ""


class Metrics(Strict, frozen=True):
    providers: tuple[ProviderRef, ...] = ()
    overrides: tuple[MetricsOverrides, ...] = ()
    reporting_interval: Duration | None = None


class MetricSelector(OneOf, frozen=True):
    groups: ClassVar = (("metric", "custom_metric"),)

    metric: IstioMetric | None = None
    custom_metric: str | None = None
    mode: WorkloadMode = "CLIENT_AND_SERVER"


class MetricsOverrides(Strict, frozen=True):
    match: MetricSelector | None = None
    disabled: bool | None = None
    tag_overrides: dict[str, TagOverride] = {}


class TagOverride(Strict, frozen=True):
    operation: TagOperation = "UPSERT"
    value: str = ""


class AccessLogging(Strict, frozen=True):
    match: ModeSelector | None = None
    providers: tuple[ProviderRef, ...] = ()
    disabled: bool | None = None
    filter: Filter | None = None


class Filter(Strict, frozen=True):
    expression: str = ""
