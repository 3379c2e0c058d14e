"""The tracing of one side of a proxy. Telemetries configure it. The default comes from the proxy config."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pilot.config.mesh.extension_provider import (
    DynatraceSampler as DynatraceSettings,
)
from pilot.config.mesh.extension_provider import (
    ExtensionProvider,
    HttpHeader,
    HttpService,
    OpenTelemetryTracingProvider,
    ZipkinTracingProvider,
)
from pilot.config.mesh.tracing import CustomTag
from pilot.config.telemetry import SpanTag
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.tracing.collectors import GrpcCollector, Headers, HttpCollector, join_url
from pilot.envoy.tracing.request_tracing import RequestTracing
from pilot.envoy.tracing.tracers import (
    DatadogTracer,
    Detector,
    DynatraceSamplerSettings,
    OpenTelemetryTracer,
    SkyWalkingTracer,
    Tracer,
    ZipkinTracer,
)
from pilot.mesh.model.facets import ListeningFacet, ScopeFacet
from pilot.mesh.model.telemetry_features import (
    DETECTOR,
    DYNATRACE_SAMPLER,
    FORMATTED_TAG,
    PROPAGATION,
    ZIPKIN_CONTEXT,
    ZIPKIN_ENDPOINT,
)
from pilot.mesh.model.telemetry_rules import SpanRules
from pilot.mesh.registry.mesh_services import ProviderPort
from pilot.mesh.tables.database import Mesh
from pilot.mesh.telemetry.providers import provider_port, telemetry_provider
from pilot.mesh.traffic.imports import imported

_ZIPKIN_PATH, _SAMPLING_PATH = "/api/v2/spans", "api/v2/samplingConfiguration"


def request_tracing(db: Mesh, listening: ListeningFacet, scope: ScopeFacet) -> RequestTracing | None:
    """Return the tracing of one side of a proxy, or None if it is disabled. Not memoised.

    Tracing is also disabled if a Sidecar hides the tracer's cluster, because Envoy would reject the tracer.
    """
    settings = side_tracing(db, listening)
    if settings is None or not isinstance(settings.tracer, ZipkinTracer | DatadogTracer):
        return settings
    return settings if _is_visible(db, scope, settings.tracer.provider) else None


def _is_visible(db: Mesh, scope: ScopeFacet, port: ProviderPort) -> bool:
    """Return whether the cluster for a provider's port is visible to proxies with this scope."""
    import_key = imported(db, scope, port.hostname)
    return import_key is not None and (import_key.ports is None or port.port in import_key.ports)


@derived
def side_tracing(db: Mesh, listening: ListeningFacet) -> RequestTracing | None:
    """Return the tracing of one side of a proxy, regardless of its scope. The proxy config provides defaults."""
    defaults = listening.tracing
    rules = listening.telemetry.spans
    if rules is None:
        tracing = RequestTracing(
            sampling=defaults.sampling,
            istio_tags=defaults.istio_tags,
            tags=defaults.tags,
            max_path_length=defaults.max_path_length,
        )
        return tracing if defaults.default else None
    provider_tracer = tracer(db, rules.provider) if rules.provider and not rules.disabled else None
    if provider_tracer is None or provider_tracer.name in listening.unsupported_telemetry:
        return None
    return RequestTracing(
        tracer=_supported_tracer(provider_tracer, listening.unsupported_telemetry),
        sampling=_sampling(rules, provider_tracer, defaults.sampling),
        istio_tags=rules.istio_tags,
        tags=_supported_tags(rules.tags, listening.unsupported_telemetry) if rules.tags else defaults.tags,
        max_path_length=max_path_length(db, rules.provider) or defaults.max_path_length,
        child_span=listening.side == "gateway" or isinstance(provider_tracer, SkyWalkingTracer),
        propagates_context=rules.propagated or PROPAGATION in listening.unsupported_telemetry,
        request_id_sampling=rules.request_id_sampling,
    )


def _sampling(rules: SpanRules, provider_tracer: Tracer, default: float) -> float:
    """Return the percentage of requests to sample. It is 100 for a tracer that has its own sampler."""
    if isinstance(provider_tracer, OpenTelemetryTracer) and provider_tracer.sampler is not None:
        return 100.0
    return default if rules.sampling is None else rules.sampling


def _supported_tags(
    tags: Iterable[tuple[str, SpanTag]], unsupported: frozenset[str]
) -> tuple[tuple[str, CustomTag], ...]:
    return tuple((name, tag) for name, tag in tags if tag.formatter is None or FORMATTED_TAG not in unsupported)


def _supported_tracer(provider_tracer: Tracer, unsupported: frozenset[str]) -> Tracer:
    """Return a tracer without the features that the proxy's build does not support."""
    if isinstance(provider_tracer, ZipkinTracer):
        return replace(
            provider_tracer,
            supports_collector_service=ZIPKIN_ENDPOINT not in unsupported,
            w3c=provider_tracer.w3c and ZIPKIN_CONTEXT not in unsupported,
        )
    if isinstance(provider_tracer, OpenTelemetryTracer):
        detectors = tuple(kind for kind in provider_tracer.detectors if f"{DETECTOR}{kind}" not in unsupported)
        return replace(
            provider_tracer,
            detectors=detectors,
            sampler=None if DYNATRACE_SAMPLER in unsupported else provider_tracer.sampler,
        )
    return provider_tracer


# -- providers ---------------------------------------------------------------------------------------------------------


@derived
def max_path_length(db: Mesh, name: str) -> int:
    """Return the length to which a provider truncates paths in tags, or 0 if it sets no length."""
    provider = telemetry_provider(db, name)
    settings = (
        (provider.zipkin or provider.datadog or provider.opentelemetry)
        if isinstance(provider, ExtensionProvider)
        else None
    )
    return settings.max_tag_length if settings is not None else 0


@derived
def tracer(db: Mesh, name: str) -> Tracer | None:
    """Return the tracer of a provider, or None if the provider is not a tracer or its service is unknown."""
    provider = telemetry_provider(db, name)
    if not isinstance(provider, ExtensionProvider):
        return None
    settings = provider.zipkin or provider.datadog or provider.skywalking or provider.opentelemetry
    port = provider_port(db, settings.service, settings.port) if settings is not None else None
    if port is None:
        return None
    if provider.zipkin is not None:
        return _zipkin(db, provider.zipkin, port)
    if provider.opentelemetry is not None:
        return _open_telemetry(db, provider.opentelemetry, port)
    if provider.datadog is not None:
        return DatadogTracer(provider=port)
    return SkyWalkingTracer(collector=GrpcCollector(cluster=_cluster(port), authority=port.hostname))


def _cluster(port: ProviderPort) -> str:
    return names.outbound_cluster(port.port, "", port.hostname)


def _zipkin(db: Mesh, settings: ZipkinTracingProvider, port: ProviderPort) -> ZipkinTracer:
    path = settings.path or _ZIPKIN_PATH
    endpoint = HttpCollector(
        cluster=_cluster(port),
        uri=f"http://{port.hostname}{path}",
        timeout=settings.timeout,
        headers=_headers(db, settings.headers),
    )
    return ZipkinTracer(
        provider=port,
        collector=endpoint,
        path=path,
        short_ids=settings.enable_64bit_trace_id,
        w3c=settings.trace_context_option == "USE_B3_WITH_W3C_PROPAGATION",
    )


def _open_telemetry(db: Mesh, settings: OpenTelemetryTracingProvider, port: ProviderPort) -> OpenTelemetryTracer | None:
    conventional = settings.service_attribute_enrichment == "OTEL_SEMANTIC_CONVENTIONS"
    sampler = (
        _sampler(db, settings.dynatrace_sampler, settings.http, port)
        if settings.dynatrace_sampler is not None
        else None
    )
    if settings.dynatrace_sampler is not None and sampler is None:
        return None
    return OpenTelemetryTracer(
        collector=_http(db, settings.http, port, settings.http.path)
        if settings.http is not None
        else _grpc(db, settings, port),
        conventional=conventional,
        detectors=_detectors(settings, conventional),
        sampler=sampler,
    )


def _detectors(settings: OpenTelemetryTracingProvider, conventional: bool) -> tuple[Detector, ...]:
    """Return the resource detectors of a provider. Semantic conventions require the environment detector."""
    configured = settings.resource_detectors
    detectors: list[Detector] = []
    if configured is not None and configured.environment is not None:
        detectors.append("environment")
    if configured is not None and configured.dynatrace is not None:
        detectors.append("dynatrace")
    return (*detectors, "environment") if conventional and "environment" not in detectors else tuple(detectors)


def _sampler(
    db: Mesh, settings: DynatraceSettings, http: HttpService | None, port: ProviderPort
) -> DynatraceSamplerSettings | None:
    """Return the sampler settings, or None if the address of the sampler is unknown.

    The sampler is served by the provider's own service or by a separate service.
    """
    endpoint: HttpCollector | None = None
    if settings.http_service is None:
        endpoint = _http(db, http, port, _SAMPLING_PATH) if http is not None else None
    elif settings.http_service.http is not None:
        service_port = provider_port(db, settings.http_service.service, settings.http_service.port)
        endpoint = (
            _http(db, settings.http_service.http, service_port, settings.http_service.http.path)
            if service_port is not None
            else None
        )
    if endpoint is None:
        return None
    return DynatraceSamplerSettings(
        collector=endpoint,
        tenant=settings.tenant,
        cluster_id=settings.cluster_id,
        root_spans_per_minute=settings.root_spans_per_minute,
    )


def _http(db: Mesh, settings: HttpService, port: ProviderPort, path: str) -> HttpCollector:
    return HttpCollector(
        cluster=_cluster(port),
        uri=join_url(port.hostname, path),
        timeout=settings.timeout,
        headers=_headers(db, settings.headers),
    )


def _grpc(db: Mesh, settings: OpenTelemetryTracingProvider, port: ProviderPort) -> GrpcCollector:
    grpc = settings.grpc
    return GrpcCollector(
        cluster=_cluster(port),
        authority=port.hostname,
        timeout=grpc.timeout if grpc is not None else None,
        headers=_headers(db, grpc.initial_metadata) if grpc is not None else (),
    )


def _headers(db: Mesh, headers: Iterable[HttpHeader]) -> Headers:
    """Return headers with their values. A value may come from the control plane's environment."""
    return tuple(
        (h.name, db.environment.get(h.env_name, "") if h.env_name is not None else h.value or "") for h in headers
    )
