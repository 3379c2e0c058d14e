"""Every kind that is read: where it comes from, its struct, its table, its rules, its place in metrics. A new kind is one entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pilot.config import indexes
from pilot.config.extensions.traffic_extension import TrafficExtension
from pilot.config.extensions.wasm_plugin import WasmPlugin
from pilot.config.gateway_api.backend import XBackend
from pilot.config.gateway_api.backend_policy import BackendTLSPolicy, XBackendTrafficPolicy
from pilot.config.gateway_api.gateway import Gateway as KubernetesGateway
from pilot.config.gateway_api.gateway_class import GatewayClass
from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.config.gateway_api.inference_pool import InferencePool
from pilot.config.gateway_api.l4_route import TCPRoute, TLSRoute, UDPRoute
from pilot.config.gateway_api.listener_set import ListenerSet
from pilot.config.gateway_api.reference_grant import ReferenceGrant
from pilot.config.group_kind import (
    EXPERIMENTAL_GATEWAY_API,
    EXTENSIONS,
    GATEWAY_API,
    INFERENCE,
    MULTICLUSTER,
    NETWORKING,
    SECURITY,
    TELEMETRY,
    GroupKind,
)
from pilot.config.kubernetes.config_map import ConfigMap
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.kubernetes.ingress import Ingress, IngressClass
from pilot.config.kubernetes.namespace import Namespace
from pilot.config.kubernetes.node import Node
from pilot.config.kubernetes.pod import Pod, metadata_of_pod
from pilot.config.kubernetes.secret import Secret, secret_data
from pilot.config.kubernetes.service import Service
from pilot.config.kubernetes.service_export import ServiceExport, ServiceImport
from pilot.config.mesh.proxy_config_override import ProxyConfigOverride
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.config.networking.gateway import Gateway
from pilot.config.networking.service_entry import ServiceEntry, lower_case_hosts
from pilot.config.networking.sidecar import Sidecar
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.networking.workload_entry import WorkloadEntryObject
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object
from pilot.config.problem import Problem
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.config.security.request_authentication import RequestAuthentication
from pilot.config.telemetry import Telemetry
from pilot.config.validation.authentication import validate_peer_authentication, validate_request_authentication
from pilot.config.validation.authorization import validate_authorization_policy
from pilot.config.validation.extension import validate_traffic_extension, validate_wasm_plugin
from pilot.config.validation.kubernetes import validate_endpoint_slice, validate_pod, validate_service
from pilot.config.validation.proxy_config import validate_proxy_config_override
from pilot.config.validation.telemetry import validate_telemetry
from pilot.config.validation.traffic.destination_rule import validate_destination_rule
from pilot.config.validation.traffic.envoy_filter import validate_envoy_filter
from pilot.config.validation.traffic.gateway import validate_gateway
from pilot.config.validation.traffic.service_entry import validate_service_entry
from pilot.config.validation.traffic.sidecar import validate_sidecar
from pilot.config.validation.traffic.virtual_service import validate_virtual_service
from pilot.config.validation.traffic.workload import validate_workload_entry, validate_workload_group
from pilot.derive import Index


def accept(_: Object[Any]) -> Iterable[Problem]:
    return ()


def nothing(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


class Kind(NamedTuple):
    """One kind.

    Reading: `versions` are those that are read, the preferred one first. `spec` is the struct; it takes the fields of an object's
    `spec`, its top-level fields in `parts`, and what `extra` makes of the whole object, whose metadata is right by then.
    `validate` returns the problems of a decoded object, with paths relative to the object.

    `per_cluster`: every cluster has objects of its own, keyed by `RegistryKey`; the other kinds are configuration, which counts in the
    own cluster alone and is keyed by `ObjectKey`.

    Storing: `table` is the attribute of `Mesh`, with an index for each of `indexes`; the functions in `domain_indexes` are given
    the DNS domain of the mesh and return the index.

    Metrics: `push_reason` is the type in pilot_push_triggers, `update` that in pilot_inbound_updates. `registry_event` is the type
    in pilot_k8s_reg_events; a kind that has none is counted in pilot_k8s_cfg_events.
    """

    id: GroupKind
    versions: tuple[str, ...]
    table: str
    spec: type[Any]
    validate: Callable[[Object[Any]], Iterable[Problem]] = accept
    parts: tuple[str, ...] = ()
    extra: Callable[[Mapping[str, Any]], Mapping[str, Any]] = nothing
    namespaced: bool = True
    per_cluster: bool = False
    indexes: Mapping[str, Index] = {}
    domain_indexes: Mapping[str, Callable[[str], Index]] = {}
    push_reason: str = "config"
    update: Literal["config", "svc", "eds"] = "config"
    registry_event: str = ""


class Catalogue:
    """Kinds, found by what names them and by their tables."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = {kind.id: kind for kind in kinds}
        self._by_table = {kind.table: kind for kind in self}
        first: dict[str, GroupKind] = {}
        for kind in self:
            first.setdefault(kind.id.name, kind.id)
        self._named_alone = frozenset(first.values())

    def find(self, named: GroupKind) -> Kind | None:
        return self._kinds.get(named)

    def find_by_table(self, table: str) -> Kind | None:
        """Returns the kind of that attribute of `Mesh`; None for the tables of the mesh config and of proxies."""
        return self._by_table.get(table)

    def short_name(self, kind: GroupKind) -> str:
        """Returns the label of a kind in metrics: its name alone, as istiod has it, unless an earlier kind has the same name."""
        return kind.name if kind in self._named_alone or kind not in self._kinds else str(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())


_ISTIO = ("v1", "v1beta1", "v1alpha3")
_SECURITY = ("v1", "v1beta1")
_GATEWAY_API = ("v1", "v1beta1")
CATALOGUE = Catalogue(
    (
        # Kubernetes
        Kind(
            GroupKind("", "Service"),
            ("v1",),
            "services",
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
            per_cluster=True,
            push_reason="service",
            update="svc",
            registry_event="Services",
        ),
        Kind(
            GroupKind("", "Pod"),
            ("v1",),
            "pods",
            Pod,
            validate_pod,
            parts=("status",),
            extra=metadata_of_pod,
            indexes={"ip": indexes.pod_ips},
            per_cluster=True,
            push_reason="endpoint",
            registry_event="Pods",
        ),
        Kind(
            GroupKind("", "Namespace"),
            ("v1",),
            "namespaces",
            Namespace,
            namespaced=False,
            per_cluster=True,
            push_reason="namespace",
            registry_event="Namespaces",
        ),
        Kind(
            GroupKind("", "Node"),
            ("v1",),
            "nodes",
            Node,
            parts=("status",),
            namespaced=False,
            per_cluster=True,
            indexes={"cluster": indexes.cluster},
            registry_event="Nodes",
        ),
        Kind(
            GroupKind("", "Secret"),
            ("v1",),
            "secrets",
            Secret,
            parts=("type", "data"),
            extra=secret_data,
            per_cluster=True,
            indexes={"named": indexes.object_name},
            push_reason="secret",
        ),
        Kind(
            GroupKind("", "ConfigMap"),
            ("v1",),
            "config_maps",
            ConfigMap,
            parts=("data", "binaryData"),
            indexes={"defaults_for_class": indexes.defaults_for_class},
            per_cluster=True,
        ),
        Kind(
            GroupKind("discovery.k8s.io", "EndpointSlice"),
            ("v1",),
            "endpoint_slices",
            EndpointSlice,
            validate_endpoint_slice,
            parts=("addressType", "endpoints", "ports"),
            indexes={"service": indexes.slice_service, "address": indexes.slice_addresses},
            per_cluster=True,
            push_reason="endpoint",
            update="eds",
            registry_event="EndpointSlice",
        ),
        # Istio
        Kind(
            GroupKind(NETWORKING, "VirtualService"),
            _ISTIO,
            "virtual_services",
            VirtualService,
            validate_virtual_service,
            indexes={"wildcard": indexes.has_wildcard, "delegate": indexes.delegates},
            domain_indexes={"host": indexes.full_hosts},
        ),
        Kind(
            GroupKind(NETWORKING, "DestinationRule"),
            _ISTIO,
            "destination_rules",
            DestinationRule,
            validate_destination_rule,
            indexes={
                "wildcard": indexes.wildcard_rules,
                "hashing_wildcard": indexes.hashing_wildcards,
                "exported": indexes.exported_by_name,
            },
            domain_indexes={"host": indexes.full_host},
        ),
        Kind(GroupKind(NETWORKING, "Gateway"), _ISTIO, "gateways", Gateway, validate_gateway),
        Kind(
            GroupKind(NETWORKING, "ServiceEntry"),
            _ISTIO,
            "service_entries",
            ServiceEntry,
            validate_service_entry,
            parts=("status",),
            extra=lower_case_hosts,
            indexes={
                "host": indexes.entry_hosts,
                "ref": indexes.entry_refs,
                "address": indexes.endpoint_addresses,
                "selecting": indexes.selecting,
            },
            push_reason="service",
            update="svc",
        ),
        Kind(
            GroupKind(NETWORKING, "WorkloadEntry"),
            _ISTIO,
            "workload_entries",
            WorkloadEntryObject,
            validate_workload_entry,
            parts=("status",),
            indexes={"address": indexes.entry_address, "registered": indexes.is_registered},
            per_cluster=True,
            push_reason="endpoint",
        ),
        Kind(GroupKind(NETWORKING, "WorkloadGroup"), _ISTIO, "workload_groups", WorkloadGroup, validate_workload_group),
        Kind(GroupKind(NETWORKING, "Sidecar"), _ISTIO, "sidecars", Sidecar, validate_sidecar),
        Kind(GroupKind(NETWORKING, "EnvoyFilter"), ("v1alpha3",), "envoy_filters", EnvoyFilter, validate_envoy_filter),
        Kind(
            GroupKind(SECURITY, "PeerAuthentication"),
            _SECURITY,
            "peer_authentications",
            PeerAuthentication,
            validate_peer_authentication,
        ),
        Kind(
            GroupKind(SECURITY, "RequestAuthentication"),
            _SECURITY,
            "request_authentications",
            RequestAuthentication,
            validate_request_authentication,
            indexes={"jwks": indexes.key_sets},
        ),
        Kind(
            GroupKind(SECURITY, "AuthorizationPolicy"),
            _SECURITY,
            "authorization_policies",
            AuthorizationPolicy,
            validate_authorization_policy,
        ),
        Kind(
            GroupKind(NETWORKING, "ProxyConfig"),
            ("v1beta1",),
            "proxy_configs",
            ProxyConfigOverride,
            validate_proxy_config_override,
        ),
        Kind(GroupKind(EXTENSIONS, "WasmPlugin"), ("v1alpha1",), "wasm_plugins", WasmPlugin, validate_wasm_plugin),
        Kind(
            GroupKind(EXTENSIONS, "TrafficExtension"),
            ("v1alpha1",),
            "traffic_extensions",
            TrafficExtension,
            validate_traffic_extension,
        ),
        Kind(GroupKind(TELEMETRY, "Telemetry"), ("v1", "v1alpha1"), "telemetries", Telemetry, validate_telemetry),
        # Gateway API
        Kind(GroupKind(GATEWAY_API, "GatewayClass"), _GATEWAY_API, "gateway_classes", GatewayClass, namespaced=False),
        Kind(
            GroupKind(GATEWAY_API, "Gateway"),
            _GATEWAY_API,
            "kubernetes_gateways",
            KubernetesGateway,
            parts=("status",),
            indexes={"network": indexes.is_network_gateway},
        ),
        Kind(
            GroupKind(GATEWAY_API, "ListenerSet"),
            ("v1",),
            "listener_sets",
            ListenerSet,
            indexes={"gateway": indexes.gateway_of_listener_set},
        ),
        Kind(GroupKind(GATEWAY_API, "HTTPRoute"), _GATEWAY_API, "http_routes", HTTPRoute),
        Kind(GroupKind(GATEWAY_API, "GRPCRoute"), ("v1",), "grpc_routes", GRPCRoute),
        Kind(GroupKind(GATEWAY_API, "TCPRoute"), ("v1", "v1alpha2"), "tcp_routes", TCPRoute),
        Kind(GroupKind(GATEWAY_API, "TLSRoute"), ("v1", "v1alpha3", "v1alpha2"), "tls_routes", TLSRoute),
        Kind(GroupKind(GATEWAY_API, "UDPRoute"), ("v1alpha2",), "udp_routes", UDPRoute),
        Kind(
            GroupKind(GATEWAY_API, "ReferenceGrant"),
            ("v1beta1", "v1"),
            "reference_grants",
            ReferenceGrant,
            indexes={"pair": indexes.granted_pairs},
        ),
        Kind(
            GroupKind(GATEWAY_API, "BackendTLSPolicy"),
            ("v1", "v1alpha3"),
            "backend_tls_policies",
            BackendTLSPolicy,
            indexes={"target": indexes.policy_targets},
        ),
        Kind(
            GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackendTrafficPolicy"),
            ("v1alpha1",),
            "backend_traffic_policies",
            XBackendTrafficPolicy,
            indexes={"target": indexes.policy_targets},
        ),
        Kind(GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackend"), ("v1alpha1",), "backends", XBackend),
        Kind(GroupKind(INFERENCE, "InferencePool"), ("v1",), "inference_pools", InferencePool),
        # Multi-cluster services
        Kind(
            GroupKind(MULTICLUSTER, "ServiceExport"),
            ("v1alpha1",),
            "service_exports",
            ServiceExport,
            per_cluster=True,
            indexes={"named": indexes.object_name},
            push_reason="service",
        ),
        Kind(
            GroupKind(MULTICLUSTER, "ServiceImport"),
            ("v1alpha1",),
            "service_imports",
            ServiceImport,
            per_cluster=True,
            push_reason="service",
        ),
        # Ingress
        Kind(GroupKind("networking.k8s.io", "Ingress"), ("v1",), "ingresses", Ingress),
        Kind(
            GroupKind("networking.k8s.io", "IngressClass"), ("v1",), "ingress_classes", IngressClass, namespaced=False
        ),
    )
)


def is_ours(group: str) -> bool:
    """Returns whether users could expect a mesh to obey kinds of that group, so that one that is not in the catalogue is told of."""
    return group.endswith(".istio.io") or group in (
        GATEWAY_API,
        EXPERIMENTAL_GATEWAY_API,
        INFERENCE,
        "networking.k8s.io",
        "discovery.k8s.io",
    )
