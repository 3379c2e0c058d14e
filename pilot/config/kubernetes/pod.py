"""Kubernetes Pod. https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.config.base import Int32, Lenient


class ContainerPort(Lenient, frozen=True):
    name: str = ""
    container_port: Int32 = 0
    protocol: str = "TCP"


class Container(Lenient, frozen=True):
    """A container. An init container whose `restart_policy` is "Always" is a sidecar."""

    name: str = ""
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class PodIP(Lenient, frozen=True):
    ip: str = ""


class PodCondition(Lenient, frozen=True):
    type: str = ""
    status: str = ""


class PodStatus(Lenient, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    host_ip: str = msgspec.field(default="", name="hostIP")
    conditions: tuple[PodCondition, ...] = ()


class OwnerReference(Lenient, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class Pod(Lenient, frozen=True):
    """A Pod: fields of its spec, its `status`, and fields of its metadata (`uid` and below)."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    service_account_name: str = ""
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    status: PodStatus = PodStatus()
    uid: str = ""
    deletion_timestamp: str = ""
    generate_name: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


def metadata_of_pod(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of `Pod` that come from an object's metadata."""
    metadata = plain["metadata"]
    return {
        field: metadata[field]
        for field in ("uid", "deletionTimestamp", "generateName", "ownerReferences")
        if metadata.get(field) is not None
    }
