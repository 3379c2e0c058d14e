"""Kubernetes' kinds: the services and workloads of each cluster."""

from __future__ import annotations

from pilot.config import indexes
from pilot.config.group_kind import GroupKind
from pilot.config.kind import RegistryKind
from pilot.config.kubernetes.config_map import ConfigMap
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.kubernetes.namespace import Namespace
from pilot.config.kubernetes.node import Node
from pilot.config.kubernetes.pod import Pod, metadata_of_pod
from pilot.config.kubernetes.secret import Secret, secret_data
from pilot.config.kubernetes.service import Service
from pilot.config.validation.kubernetes import validate_endpoint_slice, validate_pod, validate_service

SERVICE = RegistryKind(
    GroupKind("", "Service"),
    ("v1",),
    Service,
    validate_service,
    parts=("status",),
    indexes={
        "cluster": indexes.cluster,
        "selected": indexes.one_selected_label,
        "network": indexes.is_network_gateway,
        "external": indexes.is_external_name,
        "exported": indexes.has_export_to,
    },
    push_reason="service",
    update="svc",
    registry_event="Services",
)

POD = RegistryKind(
    GroupKind("", "Pod"),
    ("v1",),
    Pod,
    validate_pod,
    parts=("status",),
    extra=metadata_of_pod,
    indexes={"ip": indexes.pod_ips},
    push_reason="endpoint",
    registry_event="Pods",
)

NAMESPACE = RegistryKind(
    GroupKind("", "Namespace"),
    ("v1",),
    Namespace,
    namespaced=False,
    push_reason="namespace",
    registry_event="Namespaces",
)

NODE = RegistryKind(
    GroupKind("", "Node"),
    ("v1",),
    Node,
    parts=("status",),
    namespaced=False,
    indexes={"cluster": indexes.cluster},
    registry_event="Nodes",
)

SECRET = RegistryKind(
    GroupKind("", "Secret"),
    ("v1",),
    Secret,
    parts=("type", "data"),
    extra=secret_data,
    indexes={"named": indexes.object_name},
    push_reason="secret",
)

CONFIG_MAP = RegistryKind(
    GroupKind("", "ConfigMap"),
    ("v1",),
    ConfigMap,
    parts=("data", "binaryData"),
    indexes={"defaults_for_class": indexes.defaults_for_class},
)

ENDPOINT_SLICE = RegistryKind(
    GroupKind("discovery.k8s.io", "EndpointSlice"),
    ("v1",),
    EndpointSlice,
    validate_endpoint_slice,
    parts=("addressType", "endpoints", "ports"),
    indexes={"service": indexes.slice_service, "address": indexes.slice_addresses},
    push_reason="endpoint",
    update="eds",
    registry_event="EndpointSlice",
)
