"""Builds the tracing part of HTTP connection managers: sampling, and the tags of a workload's spans."""
from __future__ import annotations

from collections.abc import Iterator

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.type.metadata.v3 import metadata_pb2
from envoy.type.tracing.v3 import custom_tag_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from pilot.model.config.tracing import CustomTag
from pilot.model.facets import SpanTagsFacet, TracingFacet

RBAC_METADATA = "envoy.filters.http.rbac"


def _dry_run(tag: str, key: str) -> custom_tag_pb2.CustomTag:
    """Returns the tag for what a dry run of authorization policies said about a request."""
    segment = metadata_pb2.MetadataKey.PathSegment(key=key)
    return custom_tag_pb2.CustomTag(
        tag=f"istio.authorization.dry_run.{tag}",
        metadata=custom_tag_pb2.CustomTag.Metadata(
            kind=metadata_pb2.MetadataKind(request=metadata_pb2.MetadataKind.Request()),
            metadata_key=metadata_pb2.MetadataKey(key=RBAC_METADATA, path=[segment]),
        ),
    )


_DRY_RUN = [
    _dry_run(f"{action}_policy.{what}", f"istio_dry_run_{action}_shadow_{key}")
    for action in ("allow", "deny")
    for what, key in (("name", "effective_policy_id"), ("result", "engine_result"))
]
_FULL = percent_pb2.Percent(value=100.0)


def build_tracing(tracing: TracingFacet, tags: SpanTagsFacet) -> hcm_pb2.HttpConnectionManager.Tracing:
    """Returns the tracing of one workload, without a provider of its own: Envoy takes the tracer of its bootstrap."""
    built = hcm_pb2.HttpConnectionManager.Tracing(
        client_sampling=_FULL,
        overall_sampling=_FULL,
        random_sampling=percent_pb2.Percent(value=tracing.sampling),
        custom_tags=sorted(_tags(tracing, tags), key=lambda t: t.tag),
    )
    if tracing.max_path_length:
        built.max_path_tag_length.CopyFrom(wrappers_pb2.UInt32Value(value=tracing.max_path_length))
    return built


def _tags(tracing: TracingFacet, tags: SpanTagsFacet) -> Iterator[custom_tag_pb2.CustomTag]:
    if tracing.istio_tags:
        yield _literal("istio.canonical_revision", tags.revision)
        yield _literal("istio.canonical_service", tags.service)
        yield _literal("istio.cluster_id", tags.cluster_id)
        yield _literal("istio.mesh_id", tags.mesh_id)
        yield _literal("istio.namespace", tags.namespace)
        yield from _DRY_RUN
    for name, tag in tracing.tags:
        if (built := _custom(name, tag)) is not None:
            yield built


def _literal(tag: str, value: str) -> custom_tag_pb2.CustomTag:
    return custom_tag_pb2.CustomTag(tag=tag, literal=custom_tag_pb2.CustomTag.Literal(value=value))


def _custom(name: str, tag: CustomTag) -> custom_tag_pb2.CustomTag | None:
    if not name or not tag.is_whole:
        return None
    if tag.literal is not None:
        return _literal(name, tag.literal.value)
    if (env := tag.environment) is not None:
        variable = custom_tag_pb2.CustomTag.Environment(name=env.name, default_value=env.default_value)
        return custom_tag_pb2.CustomTag(tag=name, environment=variable)
    if (header := tag.header) is not None:
        sent = custom_tag_pb2.CustomTag.Header(name=header.name, default_value=header.default_value)
        return custom_tag_pb2.CustomTag(tag=name, request_header=sent)
    return None
