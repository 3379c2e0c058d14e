"""Builds span tags: tags for the workload and its peers, and custom tags."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.type.metadata.v3 import metadata_pb2
from envoy.type.tracing.v3 import custom_tag_pb2

from pilot.config.mesh.tracing import CustomTag
from pilot.config.telemetry import SpanTag
from pilot.mesh.model.facets import SpanTagsFacet

RBAC_METADATA = "envoy.filters.http.rbac"


def _dry_run(tag: str, key: str) -> custom_tag_pb2.CustomTag:
    """Return the tag for a result of authorization policies in dry-run mode."""
    segment = metadata_pb2.MetadataKey.PathSegment(key=key)
    return custom_tag_pb2.CustomTag(
        tag=f"istio.authorization.dry_run.{tag}",
        metadata=custom_tag_pb2.CustomTag.Metadata(
            kind=metadata_pb2.MetadataKind(request=metadata_pb2.MetadataKind.Request()),
            metadata_key=metadata_pb2.MetadataKey(key=RBAC_METADATA, path=[segment]),
        ),
    )


_DRY_RUN = [
    _dry_run(f"{action}_policy.{suffix}", f"istio_dry_run_{action}_shadow_{key}")
    for action in ("allow", "deny")
    for suffix, key in (("name", "effective_policy_id"), ("result", "engine_result"))
]


def workload_tags(workload: SpanTagsFacet) -> Iterator[custom_tag_pb2.CustomTag]:
    """Yield the tags that describe the proxy's workload and the dry-run results, which Istio adds to every span."""
    yield _literal("istio.canonical_revision", workload.revision)
    yield _literal("istio.canonical_service", workload.service)
    yield _literal("istio.cluster_id", workload.cluster_id)
    yield _literal("istio.mesh_id", workload.mesh_id)
    yield _literal("istio.namespace", workload.namespace)
    yield from _DRY_RUN


_FIELDS = {
    "app": "app",
    "app_version": "version",
    "canonical_revision": "revision",
    "canonical_service": "service",
    "cluster_id": "cluster",
    "instance_name": "name",
    "namespace": "namespace",
    "workload": "workload",
    "workload_type": "type",
}
_ENDS = (("source", "downstream"), ("destination", "upstream"))


def peer_tags() -> Iterator[custom_tag_pb2.CustomTag]:
    """Yield the tags that describe the workloads at both ends of a request."""
    for end, stream in _ENDS:
        for tag, field in _FIELDS.items():
            yield custom_tag_pb2.CustomTag(
                tag=f"istio.{end}_{tag}", value=f"%FILTER_STATE({stream}_peer_obj:FIELD:{field})%"
            )


def _literal(tag: str, value: str) -> custom_tag_pb2.CustomTag:
    return custom_tag_pb2.CustomTag(tag=tag, literal=custom_tag_pb2.CustomTag.Literal(value=value))


def build_custom_tag(name: str, tag: CustomTag) -> custom_tag_pb2.CustomTag | None:
    """Return a custom tag, or None if it is incomplete."""
    if not name or not tag.is_whole:
        return None
    if tag.literal is not None:
        return _literal(name, tag.literal.value)
    if (environment := tag.environment) is not None:
        variable = custom_tag_pb2.CustomTag.Environment(name=environment.name, default_value=environment.default_value)
        return custom_tag_pb2.CustomTag(tag=name, environment=variable)
    if (header := tag.header) is not None:
        request_header = custom_tag_pb2.CustomTag.Header(name=header.name, default_value=header.default_value)
        return custom_tag_pb2.CustomTag(tag=name, request_header=request_header)
    if isinstance(tag, SpanTag) and tag.formatter is not None:
        return custom_tag_pb2.CustomTag(tag=name, value=tag.formatter.value)
    return None
