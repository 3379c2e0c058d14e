"""Builds the settings for tracing and request IDs in HTTP connection managers."""

from __future__ import annotations

import msgspec
from envoy.config.trace.v3 import http_tracer_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.request_id.uuid.v3 import uuid_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from pilot.config.mesh.tracing import CustomTag
from pilot.envoy.newer_fields import NO_CONTEXT_PROPAGATION
from pilot.envoy.tracing.span_tags import build_custom_tag, peer_tags, workload_tags
from pilot.envoy.tracing.tracers import Tracer
from pilot.envoy.well_known_types import pack
from pilot.mesh.model.facets import SpanTagsFacet

Manager = hcm_pb2.HttpConnectionManager
_FULL = percent_pb2.Percent(value=100.0)
_YES = wrappers_pb2.BoolValue(value=True)
_NOT_PROPAGATED = Manager.Tracing.FromString(NO_CONTEXT_PROPAGATION.encode())  # in Envoy 1.38 and later


class RequestTracing(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for the tracing of requests.

    - `tracer`: None for the tracer in the proxy's bootstrap.
    - `sampling`: in percent.
    - `max_path_length`: 0 for Envoy's default.
    - `child_span`: the upstream request has its own span.
    - `request_id_sampling`: the request ID records the sampling decision.
    """

    tracer: Tracer | None = None
    sampling: float = 1.0
    istio_tags: bool = True
    tags: tuple[tuple[str, CustomTag], ...] = ()
    max_path_length: int = 0
    child_span: bool = False
    propagates_context: bool = True
    request_id_sampling: bool = True


def build_request_tracing(settings: RequestTracing, workload: SpanTagsFacet) -> hcm_pb2.HttpConnectionManager:
    """Return an HTTP connection manager with only the fields that configure tracing for a workload."""
    tracing = Manager.Tracing(
        client_sampling=_FULL,
        overall_sampling=_FULL,
        random_sampling=percent_pb2.Percent(value=settings.sampling),
        spawn_upstream_span=_YES if settings.child_span else None,
        max_path_tag_length=wrappers_pb2.UInt32Value(value=settings.max_path_length)
        if settings.max_path_length
        else None,
    )
    istio_tags = (*(workload_tags(workload) if settings.istio_tags else ()), *(peer_tags() if workload.peers else ()))
    tags = [*istio_tags, *(custom for tag in settings.tags if (custom := build_custom_tag(*tag)) is not None)]
    tracing.custom_tags.extend(sorted(tags, key=lambda tag: tag.tag))
    if settings.tracer is not None:
        tracing.provider.CopyFrom(
            http_tracer_pb2.Tracing.Http(name=settings.tracer.name, typed_config=settings.tracer.build(workload))
        )
    if not settings.propagates_context:
        tracing.MergeFrom(_NOT_PROPAGATED)
    return Manager(
        tracing=tracing, request_id_extension=None if settings.request_id_sampling else build_request_id(sampling=False)
    )


def build_request_id(sampling: bool) -> hcm_pb2.RequestIDExtension:
    """Return the request ID extension. If `sampling` is set, the request ID records the sampling decision."""
    config = uuid_pb2.UuidRequestIdConfig(use_request_id_for_trace_sampling=wrappers_pb2.BoolValue(value=sampling))
    return hcm_pb2.RequestIDExtension(typed_config=pack(config))
