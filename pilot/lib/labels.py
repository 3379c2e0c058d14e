"""Labels of workloads, and the information that Istio derives from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

CANONICAL_NAME = "service.istio.io/canonical-name"
CANONICAL_REVISION = "service.istio.io/canonical-revision"
LATEST = "latest"

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
SUBZONE = "topology.istio.io/subzone"
CLUSTER = "topology.istio.io/cluster"
NETWORK = "topology.istio.io/network"
HOSTNAME = "kubernetes.io/hostname"
LOCALITY = "topology.istio.io/locality"
WORKLOAD_NAME = "service.istio.io/workload-name"
TLS_MODE = "security.istio.io/tlsMode"
TUNNEL = "networking.istio.io/tunnel"
GATEWAY_MANAGED = "gateway.istio.io/managed"
POD_TEMPLATE_HASH = "pod-template-hash"
ROLLOUT_TEMPLATE_HASH = "rollouts-pod-template-hash"

_OLD_LOCALITY = "istio-locality"
_OLD_REGION = "failure-domain.beta.kubernetes.io/region"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_NAMES = (CANONICAL_NAME, "app.kubernetes.io/name", "app")
_REVISIONS = (CANONICAL_REVISION, "app.kubernetes.io/version", "version")


REDIRECTION = "ambient.istio.io/redirection"  # an annotation of Pods
GATEWAY_CONTROLLER = "istio.io-gateway-controller"  # the value of `GATEWAY_MANAGED` at gateways
MESH_CONTROLLER = "istio.io-mesh-controller"  # the value of `GATEWAY_MANAGED` at waypoints


def accepts_hbone(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Return whether a workload accepts HBONE, either itself or through a ztunnel."""
    return "http" in labels.get(TUNNEL, "").split(",") or annotations.get(REDIRECTION) == "enabled"


def cut(labels: Mapping[str, str], keys: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the labels whose keys are in `keys`."""
    return frozenset((k, v) for k in keys if (v := labels.get(k)) is not None) if keys else frozenset()


def canonical_service(labels: Mapping[str, str], workload: str) -> tuple[str, str]:
    """Return the canonical name and revision of a workload. They default to the workload's name and "latest"."""
    name = next((labels[k] for k in _NAMES if k in labels), workload)
    return name, next((labels[k] for k in _REVISIONS if k in labels), LATEST)


def locality_label(labels: Mapping[str, str]) -> str:
    """Return the locality in a workload's labels as "region/zone/subzone", or "" if there is none.

    It overrides the locality of the node. Its parts are separated by ".", because label values cannot contain "/".
    """
    locality = labels.get(LOCALITY, labels.get(_OLD_LOCALITY, ""))
    return locality if "/" in locality else locality.replace(".", "/")


def node_locality(labels: Mapping[str, str]) -> str:
    """Return the locality in a Kubernetes node's labels as "region/zone/subzone", or "" if there is none."""
    region = labels.get(REGION) or labels.get(_OLD_REGION, "")
    zone = labels.get(ZONE) or labels.get(_OLD_ZONE, "")
    subzone = labels.get(SUBZONE, "")
    return f"{region}/{zone}/{subzone}" if region or zone or subzone else ""


def split_locality(text: str) -> tuple[str, str, str]:
    """Return the region, zone and subzone in "region/zone/subzone". Missing parts are ""."""
    parts = text.split("/")
    return parts[0], parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else ""


TOPOLOGY = frozenset({REGION, ZONE, SUBZONE, CLUSTER, HOSTNAME, NETWORK})
"""The labels that `with_topology` adds."""


def with_topology(labels: Mapping[str, str], cluster: str, locality: str, node: str, network: str) -> dict[str, str]:
    """Return the labels, with labels for the workload's topology added. An existing network label is kept."""
    out = dict(labels)
    region, zone, subzone = split_locality(locality)
    where = {REGION: region, ZONE: zone, SUBZONE: subzone, CLUSTER: cluster, HOSTNAME: node}
    out.update({key: value for key, value in where.items() if value})
    if network and not out.get(NETWORK):
        out[NETWORK] = network
    return out
