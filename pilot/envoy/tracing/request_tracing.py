"""Builds the tracing part of HTTP connection managers."""

from __future__ import annotations

import msgspec
from envoy.config.trace.v3 import http_tracer_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.request_id.uuid.v3 import uuid_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from pilot.config.mesh.tracing import CustomTag
from pilot.envoy.tracing.span_tags import build_custom_tag, peer_tags, workload_tags
from pilot.envoy.tracing.tracers import Tracer
from pilot.envoy.well_known_types import pack
from pilot.mesh.model.facets import SpanTagsFacet

Manager = hcm_pb2.HttpConnectionManager


_FULL = percent_pb2.Percent(value=100.0)


_YES = wrappers_pb2.BoolValue(value=True)


# The field no_context_propagation, number 13, of Envoy 1.38 and later, which our copy of its messages does not have yet.
_NOT_PROPAGATED = Manager.Tracing.FromString(bytes((13 << 3, 1)))


class RequestTracing(msgspec.Struct, frozen=True, kw_only=True):
    """Says how requests are traced. `tracer` None: by the one of the proxy's bootstrap. `sampling` is in percent; `max_path_length` 0: Envoy's own
    limit; `child_span`: the request that is sent on has a span of its own; `request_id_sampling`: the request's id remembers what was chosen."""

    tracer: Tracer | None = None
    sampling: float = 1.0
    istio_tags: bool = True
    tags: tuple[tuple[str, CustomTag], ...] = ()
    max_path_length: int = 0
    child_span: bool = False
    propagated: bool = True
    request_id_sampling: bool = True


def build_request_tracing(spans: RequestTracing, workload: SpanTagsFacet) -> hcm_pb2.HttpConnectionManager:
    """Returns the fields of a manager by which it traces for a workload."""
    tracing = Manager.Tracing(
        client_sampling=_FULL,
        overall_sampling=_FULL,
        random_sampling=percent_pb2.Percent(value=spans.sampling),
        spawn_upstream_span=_YES if spans.child_span else None,
        max_path_tag_length=wrappers_pb2.UInt32Value(value=spans.max_path_length) if spans.max_path_length else None,
    )
    ours = (*(workload_tags(workload) if spans.istio_tags else ()), *(peer_tags() if workload.peers else ()))
    tags = [*ours, *(built for t in spans.tags if (built := build_custom_tag(*t)) is not None)]
    tracing.custom_tags.extend(sorted(tags, key=lambda tag: tag.tag))
    if spans.tracer is not None:
        tracing.provider.CopyFrom(
            http_tracer_pb2.Tracing.Http(name=spans.tracer.name, typed_config=spans.tracer.build(workload))
        )
    if not spans.propagated:
        tracing.MergeFrom(_NOT_PROPAGATED)
    return Manager(
        tracing=tracing, request_id_extension=None if spans.request_id_sampling else build_request_id(sampling=False)
    )


def build_request_id(sampling: bool) -> hcm_pb2.RequestIDExtension:
    """Returns the extension; with `sampling` the id remembers whether a request is traced."""
    config = uuid_pb2.UuidRequestIdConfig(use_request_id_for_trace_sampling=wrappers_pb2.BoolValue(value=sampling))
    return hcm_pb2.RequestIDExtension(typed_config=pack(config))
