"""Kubernetes' kinds, including those of the Multi-Cluster Services API."""

from __future__ import annotations

from pilot.config import indexes
from pilot.config.group_kind import MULTICLUSTER, GroupKind
from pilot.config.kind import Kind, RegistryKind
from pilot.config.kubernetes.cluster_scoped import Namespace, Node
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.kubernetes.ingress import Ingress, IngressClass
from pilot.config.kubernetes.pod import Pod, metadata_of_pod
from pilot.config.kubernetes.secret_config_map import ConfigMap, Secret, secret_data
from pilot.config.kubernetes.service import Service, ServiceExport, ServiceImport
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
        "named_target": indexes.has_named_target,
        "external": indexes.is_external_name,
        "exported": indexes.has_export_to,
        "named": indexes.plain_name,
        "many_ports": indexes.many_ports,
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
    indexes={
        "service": indexes.slice_service,
        "address": indexes.slice_addresses,
        "unready": indexes.is_unready_slice,
    },
    push_reason="endpoint",
    update="eds",
    registry_event="EndpointSlice",
)

SERVICE_EXPORT = RegistryKind(
    GroupKind(MULTICLUSTER, "ServiceExport"),
    ("v1alpha1",),
    ServiceExport,
    indexes={"named": indexes.object_name},
    push_reason="service",
)

SERVICE_IMPORT = RegistryKind(
    GroupKind(MULTICLUSTER, "ServiceImport"), ("v1alpha1",), ServiceImport, push_reason="service"
)

INGRESS = Kind(GroupKind("networking.k8s.io", "Ingress"), ("v1",), Ingress)

INGRESS_CLASS = Kind(GroupKind("networking.k8s.io", "IngressClass"), ("v1",), IngressClass, namespaced=False)
