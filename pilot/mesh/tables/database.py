"""Every input table. Derived functions take a `Mesh` and read these, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pilot.config import indexes
from pilot.config.catalogue import CATALOGUE, Catalogue, Kind
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
from pilot.config.kubernetes.config_map import ConfigMap
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.kubernetes.ingress import Ingress, IngressClass
from pilot.config.kubernetes.namespace import Namespace
from pilot.config.kubernetes.node import Node
from pilot.config.kubernetes.pod import Pod
from pilot.config.kubernetes.secret import Secret
from pilot.config.kubernetes.service import Service
from pilot.config.kubernetes.service_export import ServiceExport, ServiceImport
from pilot.config.mesh.proxy_config_override import ProxyConfigOverride
from pilot.config.networking.destination_rule import DestinationRule
from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.config.networking.gateway import Gateway
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.networking.sidecar import Sidecar
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.networking.workload_entry import WorkloadEntryObject
from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.config.security.jwks import JwksKey
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.config.security.request_authentication import RequestAuthentication
from pilot.config.telemetry import Telemetry
from pilot.derive import Database, Table
from pilot.mesh.model.nack import Refusal, RefusalKey
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.indexes import proxy_lacks, proxy_namespace, proxy_type, refused_objects
from pilot.settings.mesh import MeshSettings

S = TypeVar("S")
Rows = Table[ObjectKey, Object[S]]
RegistryRows = Table[RegistryKey, Object[S]]


class AccountKey(NamedTuple):
    """A service account of a cluster."""

    cluster: str
    namespace: str
    name: str


EVERY_ACCOUNT = AccountKey("", "", "")


class Mesh(Database):
    """The tables of users' kinds are made from the catalogue; here are their types alone. They hold `Object[Spec]`: configuration, which is
    that of the own cluster, by `ObjectKey`; what every cluster has its own of by `RegistryKey`.

    Every table of a namespaced kind has the index `namespace`; the others are what its entry in the catalogue says. `settings`,
    `catalogue` and `environment`, the variables of the process, never change and so are not tracked.
    """

    services: RegistryRows[Service]
    pods: RegistryRows[Pod]
    endpoint_slices: RegistryRows[EndpointSlice]
    namespaces: RegistryRows[Namespace]
    nodes: RegistryRows[Node]
    secrets: RegistryRows[Secret]
    config_maps: RegistryRows[ConfigMap]
    virtual_services: Rows[VirtualService]
    destination_rules: Rows[DestinationRule]
    gateways: Rows[Gateway]
    service_entries: Rows[ServiceEntry]
    workload_entries: RegistryRows[WorkloadEntryObject]
    workload_groups: Rows[WorkloadGroup]
    sidecars: Rows[Sidecar]
    envoy_filters: Rows[EnvoyFilter]
    peer_authentications: Rows[PeerAuthentication]
    request_authentications: Rows[RequestAuthentication]
    authorization_policies: Rows[AuthorizationPolicy]
    proxy_configs: Rows[ProxyConfigOverride]
    wasm_plugins: Rows[WasmPlugin]
    traffic_extensions: Rows[TrafficExtension]
    telemetries: Rows[Telemetry]
    gateway_classes: Rows[GatewayClass]
    kubernetes_gateways: Rows[KubernetesGateway]
    listener_sets: Rows[ListenerSet]
    http_routes: Rows[HTTPRoute]
    grpc_routes: Rows[GRPCRoute]
    tcp_routes: Rows[TCPRoute]
    tls_routes: Rows[TLSRoute]
    reference_grants: Rows[ReferenceGrant]
    backend_tls_policies: Rows[BackendTLSPolicy]
    backend_traffic_policies: Rows[XBackendTrafficPolicy]
    backends: Rows[XBackend]
    udp_routes: Rows[UDPRoute]
    inference_pools: Rows[InferencePool]
    ingresses: Rows[Ingress]
    ingress_classes: Rows[IngressClass]
    service_exports: RegistryRows[ServiceExport]
    service_imports: RegistryRows[ServiceImport]

    def __init__(
        self,
        settings: MeshSettings | None = None,
        catalogue: Catalogue = CATALOGUE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.catalogue, self.environment = settings or MeshSettings(), catalogue, dict(environment or {})
        for kind in catalogue:
            setattr(self, kind.table, self._make_table(kind))
        # Singletons, by name: "mesh" → MeshConfig (always there), "networks" → MeshNetworks
        self.mesh: Table[str, Any] = Table(self, "MeshConfig")
        # Key sets of issuers that are known
        self.jwks: Table[JwksKey, str] = Table(self, "JsonWebKeySet")
        # Proxies that are or were connected, by node id
        self.proxies: Table[str, Proxy] = Table(
            self, "Proxy", type=proxy_type, namespace=proxy_namespace, lacks=proxy_lacks
        )
        # Whether a service account may list the Secrets of its namespace, as far as that was asked; EVERY_ACCOUNT where nobody is to be asked
        self.secret_access: Table[AccountKey, bool] = Table(self, "SecretAccess")
        # What connected proxies refuse, until they take a response of the type
        self.refusals: Table[RefusalKey, Refusal] = Table(self, "Refusal", object=refused_objects)
        # The addresses of host names, of gateways of networks, as far as they were looked up
        self.resolved_hosts: Table[str, tuple[str, ...]] = Table(self, "ResolvedHost")
        # The roots of the mesh's own authorities by source, each a PEM bundle; no source where proxies are told of no roots
        self.authority_roots: Table[str, tuple[str, ...]] = Table(self, "AuthorityRoots")

    def _make_table(self, kind: Kind) -> Table[Any, Object[Any]]:
        named = {"namespace": indexes.namespace} if kind.namespaced else {}
        of_domain = {name: make(self.settings.registry.domain) for name, make in kind.domain_indexes.items()}
        return Table(self, str(kind.id), **named, **kind.indexes, **of_domain)
