"""The cluster in the node of an Envoy, which appears in traces and access logs as the name of the workload."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_CLUSTER = "istio-proxy"
CANONICAL_LABELS = ("service.istio.io/canonical-name", "app.kubernetes.io/name", "app")


def node_cluster(
    labels: Mapping[str, str], namespace: str, workload: str, naming: str | None, service_cluster: str
) -> str:
    """Return the cluster of a node. `naming` is the `tracingServiceName` of its ProxyConfig, if that is set.

    `service_cluster` is the configured cluster, and `workload` the name of the workload, or "" if it is unknown.
    """
    workload = workload or DEFAULT_CLUSTER
    canonical = next((labels[name] for name in CANONICAL_LABELS if labels.get(name)), workload)
    if naming == "CANONICAL_NAME_ONLY":
        return canonical
    if naming == "CANONICAL_NAME_AND_NAMESPACE":
        return f"{canonical}.{namespace}"
    if service_cluster not in ("", DEFAULT_CLUSTER):
        return service_cluster
    return f"{labels.get('app') or workload}.{namespace}"
