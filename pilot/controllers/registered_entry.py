"""The WorkloadEntry that a proxy outside of Kubernetes registers itself as, from the template of its WorkloadGroup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.config.networking.workload_entry import REGISTRATION_GROUP, WorkloadEntry
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object
from pilot.mesh.model.proxy import Proxy

CONTROLLER, CONNECTED, DISCONNECTED = "istio.io/workloadController", "istio.io/connectedAt", "istio.io/disconnectedAt"
HEALTH_CHECKS = "proxy.istio.io/health-checks-enabled"
LONGEST_NAME = 253
_LOCALITY = "istio-locality"
"""A label of the node that says what the entry says in a field."""


def entry_name(group: str, proxy: Proxy) -> str:
    """Returns the name of a proxy's entry: its group, its first address and its network."""
    network = proxy.text("NETWORK")
    name = f"{group}-{proxy.ips[0].replace(':', '-')}" + (f"-{network}" if network else "")
    return name[-LONGEST_NAME:].lstrip("-.")


def build_entry(group: Object[WorkloadGroup], proxy: Proxy, uid: str, api_version: str) -> dict[str, Any]:
    """Returns the object of a proxy's entry. `uid` is the group's, "" where it is not known; then nothing owns the entry."""
    template = group.spec.template or WorkloadEntry()
    metadata = group.spec.metadata
    labels = {**template.labels, **(metadata.labels if metadata else {}), **proxy.labels}
    labels.pop(_LOCALITY, None)
    spec: Mapping[str, Any] = {
        "address": proxy.ips[0],
        "ports": template.ports,
        "labels": labels,
        "weight": template.weight,
        "serviceAccount": template.service_account,
        "network": proxy.text("NETWORK") or template.network,
        "locality": _locality(proxy) or template.locality,
    }
    annotations = {**(metadata.annotations if metadata else {}), REGISTRATION_GROUP: group.name}
    if (proxy.metadata.get("PROXY_CONFIG") or {}).get("readinessProbe"):
        annotations[HEALTH_CHECKS] = "true"
    owner = {"apiVersion": api_version, "kind": "WorkloadGroup", "name": group.name, "uid": uid, "controller": True}
    owners = {"ownerReferences": [owner]} if uid else {}
    named = {
        "name": entry_name(group.name, proxy),
        "namespace": group.namespace,
        "labels": labels,
        "annotations": annotations,
        **owners,
    }
    kept = {field: msgspec.to_builtins(value) for field, value in spec.items() if value}
    return {"apiVersion": api_version, "kind": "WorkloadEntry", "metadata": named, "spec": kept}


def _locality(proxy: Proxy) -> str:
    parts = (proxy.locality.region, proxy.locality.zone, proxy.locality.subzone)
    return "/".join(parts).rstrip("/")
