"""OpenTelemetry resource attributes of a workload.

https://opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes/#service-attributes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilot.config.mesh.mesh_config import MeshConfig

_PREFIX = "resource.opentelemetry.io/"


def resource_attributes(
    mesh: MeshConfig,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    namespace: str,
    containers: Sequence[tuple[str, str]],
) -> str:
    """Return comma-separated attribute=value pairs, or "" if no extension provider of the mesh requires them.

    Each of `containers` is the name and the image of a container.
    """
    enrichments = (
        p.opentelemetry.service_attribute_enrichment for p in mesh.extension_providers if p.opentelemetry is not None
    )
    if "OTEL_SEMANTIC_CONVENTIONS" not in enrichments:
        return ""
    attributes = {
        "service.namespace": annotations.get(_PREFIX + "service.namespace") or namespace,
        "service.version": annotations.get(_PREFIX + "service.version")
        or labels.get("app.kubernetes.io/version")
        or _version(containers),
        "service.instance.id": annotations.get(_PREFIX + "service.instance.id") or _instance(namespace, containers),
    }
    return ",".join(f"{name}={value}" for name, value in attributes.items() if value)


def _version(containers: Sequence[tuple[str, str]]) -> str:
    """Return the tag and digest of the container's image, or "" if the workload does not have exactly one container."""
    if len(containers) != 1:
        return ""
    name, _, digest = containers[0][1].partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "@".join(filter(None, (tag, digest)))


def _instance(namespace: str, containers: Sequence[tuple[str, str]]) -> str:
    """Return the instance ID. It contains $(POD_NAME), which Kubernetes expands, because the Pod may not have a name
    yet."""
    return f"{namespace}.$(POD_NAME).{containers[0][0]}" if containers else ""
