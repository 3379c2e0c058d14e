"""Istio's kinds."""

from __future__ import annotations

from pilot.config import indexes
from pilot.config.extensions.traffic_extension import TrafficExtension
from pilot.config.extensions.wasm_plugin import WasmPlugin
from pilot.config.group_kind import EXTENSIONS, NETWORKING, SECURITY, GroupKind
from pilot.config.kind import AGE, Column, CustomResource, Kind, RegistryKind
from pilot.config.mesh.proxy_config import ProxyConfigOverride
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.config.networking.gateway import Gateway
from pilot.config.networking.service_entry import ServiceEntry, lower_case_hosts
from pilot.config.networking.sidecar import Sidecar
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.networking.workload_entry import WorkloadEntryObject
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.config.security.request_authentication import RequestAuthentication
from pilot.config.telemetry import Telemetry
from pilot.config.validation.authentication import validate_peer_authentication, validate_request_authentication
from pilot.config.validation.authorization import validate_authorization_policy
from pilot.config.validation.extension import validate_traffic_extension, validate_wasm_plugin
from pilot.config.validation.proxy_config import validate_proxy_config_override
from pilot.config.validation.telemetry import validate_telemetry
from pilot.config.validation.traffic.destination_rule import validate_destination_rule
from pilot.config.validation.traffic.envoy_filter import validate_envoy_filter
from pilot.config.validation.traffic.gateway import validate_gateway
from pilot.config.validation.traffic.service_entry import validate_service_entry
from pilot.config.validation.traffic.sidecar import validate_sidecar
from pilot.config.validation.traffic.virtual_service import validate_virtual_service
from pilot.config.validation.traffic.workload import validate_workload_entry, validate_workload_group
from pilot.config.validation.unknown_fields import (
    tighten_authorization_policy,
    tighten_peer_authentication,
    tighten_request_authentication,
)
from protos.istio import (
    authorization_policy_pb2,
    destination_rule_pb2,
    envoy_filter_pb2,
    gateway_pb2,
    peer_authentication_pb2,
    proxy_config_object_pb2,
    request_authentication_pb2,
    service_entry_pb2,
    sidecar_pb2,
    telemetry_pb2,
    traffic_extension_pb2,
    virtual_service_pb2,
    wasm_plugin_pb2,
    workload_entry_pb2,
    workload_group_pb2,
)

_VERSIONS = ("v1", "v1beta1", "v1alpha3")
_SECURITY_VERSIONS = ("v1", "v1beta1")

VIRTUAL_SERVICE = Kind(
    GroupKind(NETWORKING, "VirtualService"),
    _VERSIONS,
    VirtualService,
    validate_virtual_service,
    indexes={"wildcard": indexes.has_wildcard, "delegate": indexes.delegates},
    domain_indexes={"host": indexes.full_hosts},
    message=virtual_service_pb2.VirtualService,
    custom_resource=CustomResource(
        "vs",
        (
            Column("Gateways", ".spec.gateways", "Gateways and sidecars that apply the routes."),
            Column("Hosts", ".spec.hosts", "Hosts whose requests are routed."),
            AGE,
        ),
    ),
)

DESTINATION_RULE = Kind(
    GroupKind(NETWORKING, "DestinationRule"),
    _VERSIONS,
    DestinationRule,
    validate_destination_rule,
    indexes={
        "wildcard": indexes.wildcard_rules,
        "hashing_wildcard": indexes.hashing_wildcards,
        "exported": indexes.exported_by_name,
    },
    domain_indexes={"host": indexes.full_host},
    message=destination_rule_pb2.DestinationRule,
    custom_resource=CustomResource("dr", (Column("Host", ".spec.host", "Service that the rule applies to."), AGE)),
)

GATEWAY = Kind(
    GroupKind(NETWORKING, "Gateway"),
    _VERSIONS,
    Gateway,
    validate_gateway,
    message=gateway_pb2.Gateway,
    custom_resource=CustomResource("gw"),
)

SERVICE_ENTRY = Kind(
    GroupKind(NETWORKING, "ServiceEntry"),
    _VERSIONS,
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
    message=service_entry_pb2.ServiceEntry,
    custom_resource=CustomResource(
        "se",
        (
            Column("Hosts", ".spec.hosts", "Hosts of the service."),
            Column("Location", ".spec.location", "Whether the service is part of the mesh."),
            Column("Resolution", ".spec.resolution", "Resolution of the service's addresses."),
            AGE,
        ),
        requires_spec=True,
    ),
)

WORKLOAD_ENTRY = RegistryKind(
    GroupKind(NETWORKING, "WorkloadEntry"),
    _VERSIONS,
    WorkloadEntryObject,
    validate_workload_entry,
    parts=("status",),
    indexes={"address": indexes.entry_address, "registered": indexes.is_registered},
    push_reason="endpoint",
    message=workload_entry_pb2.WorkloadEntry,
    custom_resource=CustomResource(
        "we", (AGE, Column("Address", ".spec.address", "Address of the workload.")), requires_spec=True
    ),
)

WORKLOAD_GROUP = Kind(
    GroupKind(NETWORKING, "WorkloadGroup"),
    _VERSIONS,
    WorkloadGroup,
    validate_workload_group,
    message=workload_group_pb2.WorkloadGroup,
    custom_resource=CustomResource("wg", requires_spec=True),
)

SIDECAR = Kind(GroupKind(NETWORKING, "Sidecar"), _VERSIONS, Sidecar, validate_sidecar, message=sidecar_pb2.Sidecar)

ENVOY_FILTER = Kind(
    GroupKind(NETWORKING, "EnvoyFilter"),
    ("v1alpha3",),
    EnvoyFilter,
    validate_envoy_filter,
    message=envoy_filter_pb2.EnvoyFilter,
)

PEER_AUTHENTICATION = Kind(
    GroupKind(SECURITY, "PeerAuthentication"),
    _SECURITY_VERSIONS,
    PeerAuthentication,
    validate_peer_authentication,
    tighten=tighten_peer_authentication,
    message=peer_authentication_pb2.PeerAuthentication,
    custom_resource=CustomResource(
        "pa", (Column("Mode", ".spec.mtls.mode", "Types of connections that are accepted."), AGE)
    ),
)

REQUEST_AUTHENTICATION = Kind(
    GroupKind(SECURITY, "RequestAuthentication"),
    _SECURITY_VERSIONS,
    RequestAuthentication,
    validate_request_authentication,
    tighten=tighten_request_authentication,
    indexes={"jwks": indexes.key_sets},
    message=request_authentication_pb2.RequestAuthentication,
    custom_resource=CustomResource("ra"),
)

AUTHORIZATION_POLICY = Kind(
    GroupKind(SECURITY, "AuthorizationPolicy"),
    _SECURITY_VERSIONS,
    AuthorizationPolicy,
    validate_authorization_policy,
    tighten=tighten_authorization_policy,
    message=authorization_policy_pb2.AuthorizationPolicy,
    custom_resource=CustomResource(
        "ap", (Column("Action", ".spec.action", "Action for requests that match a rule."), AGE)
    ),
)

PROXY_CONFIG = Kind(
    GroupKind(NETWORKING, "ProxyConfig"),
    ("v1beta1",),
    ProxyConfigOverride,
    validate_proxy_config_override,
    message=proxy_config_object_pb2.ProxyConfig,
)

WASM_PLUGIN = Kind(
    GroupKind(EXTENSIONS, "WasmPlugin"),
    ("v1alpha1",),
    WasmPlugin,
    validate_wasm_plugin,
    message=wasm_plugin_pb2.WasmPlugin,
    custom_resource=CustomResource(requires_spec=True),
)

TRAFFIC_EXTENSION = Kind(
    GroupKind(EXTENSIONS, "TrafficExtension"),
    ("v1alpha1",),
    TrafficExtension,
    validate_traffic_extension,
    message=traffic_extension_pb2.TrafficExtension,
    custom_resource=CustomResource(requires_spec=True),
)

TELEMETRY = Kind(
    GroupKind("telemetry.istio.io", "Telemetry"),
    ("v1", "v1alpha1"),
    Telemetry,
    validate_telemetry,
    message=telemetry_pb2.Telemetry,
    custom_resource=CustomResource("telemetry", stored_version="v1alpha1"),
)
