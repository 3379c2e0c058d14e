"""Derives the spans of one side of a proxy: as Telemetries say, else as its proxy config does."""

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


def spans(db: Mesh, listening: ListeningFacet, scope: ScopeFacet) -> RequestTracing | None:
    """Returns how one side of a proxy traces; None for no spans, and where Envoy would refuse the tracer because a Sidecar hides its cluster. No node
    of its own."""
    found = side_spans(db, listening)
    if found is None or not isinstance(found.tracer, ZipkinTracer | DatadogTracer):
        return found
    return found if _is_seen(db, scope, found.tracer.at) else None


def _is_seen(db: Mesh, scope: ScopeFacet, at: ProviderPort) -> bool:
    """Returns whether proxies of a scope have the cluster of a port."""
    seen = imported(db, scope, at.hostname)
    return seen is not None and (seen.ports is None or at.port in seen.ports)


@derived
def side_spans(db: Mesh, listening: ListeningFacet) -> RequestTracing | None:
    """Returns how one side of a proxy traces, whatever it sees. What no Telemetry says is taken from the proxy config."""
    own = listening.tracing
    rules = listening.telemetry.spans
    if rules is None:
        asked = RequestTracing(
            sampling=own.sampling, istio_tags=own.istio_tags, tags=own.tags, max_path_length=own.max_path_length
        )
        return asked if own.default else None
    found = tracer(db, rules.provider) if rules.provider and not rules.disabled else None
    if found is None or found.name in listening.lacks:
        return None
    return RequestTracing(
        tracer=_as_built(found, listening.lacks),
        sampling=_sampling(rules, found, own.sampling),
        istio_tags=rules.istio_tags,
        tags=_known_tags(rules.tags, listening.lacks) if rules.tags else own.tags,
        max_path_length=longest_path(db, rules.provider) or own.max_path_length,
        child_span=listening.side == "gateway" or isinstance(found, SkyWalkingTracer),
        propagated=rules.propagated or PROPAGATION in listening.lacks,
        request_id_sampling=rules.request_id_sampling,
    )


def _sampling(rules: SpanRules, found: Tracer, default: float) -> float:
    """Returns the percentage of requests with spans; a sampler of the provider's is shown all of them."""
    if isinstance(found, OpenTelemetryTracer) and found.sampler is not None:
        return 100.0
    return default if rules.sampling is None else rules.sampling


def _known_tags(tags: Iterable[tuple[str, SpanTag]], lacks: frozenset[str]) -> tuple[tuple[str, CustomTag], ...]:
    return tuple((name, tag) for name, tag in tags if tag.formatter is None or FORMATTED_TAG not in lacks)


def _as_built(found: Tracer, lacks: frozenset[str]) -> Tracer:
    """Returns a tracer without what a proxy's build does not have."""
    if isinstance(found, ZipkinTracer):
        return replace(found, by_endpoint=ZIPKIN_ENDPOINT not in lacks, w3c=found.w3c and ZIPKIN_CONTEXT not in lacks)
    if isinstance(found, OpenTelemetryTracer):
        detectors = tuple(kind for kind in found.detectors if f"{DETECTOR}{kind}" not in lacks)
        return replace(found, detectors=detectors, sampler=None if DYNATRACE_SAMPLER in lacks else found.sampler)
    return found


# -- providers -------------------------------------------------------------------------------------------------------------


@derived
def longest_path(db: Mesh, name: str) -> int:
    """Returns the length to which a provider cuts paths in tags, 0 where it does not say."""
    provider = telemetry_provider(db, name)
    said = (
        (provider.zipkin or provider.datadog or provider.opentelemetry)
        if isinstance(provider, ExtensionProvider)
        else None
    )
    return said.max_tag_length if said is not None else 0


@derived
def tracer(db: Mesh, name: str) -> Tracer | None:
    """Returns the tracer of a provider; None where it is no tracer, or where its service is not known."""
    provider = telemetry_provider(db, name)
    if not isinstance(provider, ExtensionProvider):
        return None
    said = provider.zipkin or provider.datadog or provider.skywalking or provider.opentelemetry
    port = provider_port(db, said.service, said.port) if said is not None else None
    if port is None:
        return None
    if provider.zipkin is not None:
        return _zipkin(db, provider.zipkin, port)
    if provider.opentelemetry is not None:
        return _open_telemetry(db, provider.opentelemetry, port)
    if provider.datadog is not None:
        return DatadogTracer(at=port)
    return SkyWalkingTracer(to=GrpcCollector(cluster=_cluster(port), authority=port.hostname))


def _cluster(port: ProviderPort) -> str:
    return names.outbound_cluster(port.port, "", port.hostname)


def _zipkin(db: Mesh, said: ZipkinTracingProvider, port: ProviderPort) -> ZipkinTracer:
    path = said.path or _ZIPKIN_PATH
    to = HttpCollector(
        cluster=_cluster(port),
        uri=f"http://{port.hostname}{path}",
        timeout=said.timeout,
        headers=_headers(db, said.headers),
    )
    return ZipkinTracer(
        at=port,
        to=to,
        path=path,
        short_ids=said.enable_64bit_trace_id,
        w3c=said.trace_context_option == "USE_B3_WITH_W3C_PROPAGATION",
    )


def _open_telemetry(db: Mesh, said: OpenTelemetryTracingProvider, port: ProviderPort) -> OpenTelemetryTracer | None:
    conventional = said.service_attribute_enrichment == "OTEL_SEMANTIC_CONVENTIONS"
    sampler = _sampler(db, said.dynatrace_sampler, said.http, port) if said.dynatrace_sampler is not None else None
    if said.dynatrace_sampler is not None and sampler is None:
        return None
    return OpenTelemetryTracer(
        to=_http(db, said.http, port, said.http.path) if said.http is not None else _grpc(db, said, port),
        conventional=conventional,
        detectors=_detectors(said, conventional),
        sampler=sampler,
    )


def _detectors(said: OpenTelemetryTracingProvider, conventional: bool) -> tuple[Detector, ...]:
    """Returns the detectors of a provider; with the conventional names of workloads, the environment may say more of them."""
    asked = said.resource_detectors
    found: list[Detector] = []
    if asked is not None and asked.environment is not None:
        found.append("environment")
    if asked is not None and asked.dynatrace is not None:
        found.append("dynatrace")
    return (*found, "environment") if conventional and "environment" not in found else tuple(found)


def _sampler(
    db: Mesh, said: DynatraceSettings, http: HttpService | None, port: ProviderPort
) -> DynatraceSamplerSettings | None:
    """Returns the sampler: where the provider's spans go, or at a service of its own; None where that is not known."""
    at: HttpCollector | None = None
    if said.http_service is None:
        at = _http(db, http, port, _SAMPLING_PATH) if http is not None else None
    elif said.http_service.http is not None:
        own = provider_port(db, said.http_service.service, said.http_service.port)
        at = _http(db, said.http_service.http, own, said.http_service.http.path) if own is not None else None
    if at is None:
        return None
    return DynatraceSamplerSettings(
        at=at, tenant=said.tenant, cluster_id=said.cluster_id, root_spans_per_minute=said.root_spans_per_minute
    )


def _http(db: Mesh, said: HttpService, port: ProviderPort, path: str) -> HttpCollector:
    return HttpCollector(
        cluster=_cluster(port),
        uri=join_url(port.hostname, path),
        timeout=said.timeout,
        headers=_headers(db, said.headers),
    )


def _grpc(db: Mesh, said: OpenTelemetryTracingProvider, port: ProviderPort) -> GrpcCollector:
    grpc = said.grpc
    return GrpcCollector(
        cluster=_cluster(port),
        authority=port.hostname,
        timeout=grpc.timeout if grpc is not None else None,
        headers=_headers(db, grpc.initial_metadata) if grpc is not None else (),
    )


def _headers(db: Mesh, said: Iterable[HttpHeader]) -> Headers:
    """Returns headers with their values; one that names a variable has it from the environment of the control plane."""
    return tuple(
        (h.name, db.environment.get(h.env_name, "") if h.env_name is not None else h.value or "") for h in said
    )
