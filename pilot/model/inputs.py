"""Every input table and its indexes, declared once. Derived functions take a `Mesh` and read these, nothing else."""
from __future__ import annotations

from typing import Any, TypeVar

from pilot.derive import Database, Table
from pilot.model import indexes
from pilot.model.config.config_map import ConfigMap
from pilot.model.config.destination_rule import DestinationRule
from pilot.model.config.endpoint_slice import EndpointSlice
from pilot.model.config.gateway import Gateway
from pilot.model.config.namespace import Namespace
from pilot.model.config.node import Node
from pilot.model.config.object import Object, ObjectKey
from pilot.model.config.peer_authentication import PeerAuthentication
from pilot.model.config.pod import Pod
from pilot.model.config.request_authentication import RequestAuthentication
from pilot.model.config.secret import Secret
from pilot.model.config.service import Service
from pilot.model.config.service_entry import ServiceEntry
from pilot.model.config.sidecar import Sidecar
from pilot.model.config.virtual_service import VirtualService
from pilot.model.config.workload_entry import WorkloadEntryObject
from pilot.model.config.workload_group import WorkloadGroup
from pilot.model.proxy import Proxy
from pilot.settings import Settings

S = TypeVar("S")
Rows = Table[ObjectKey, Object[S]]


class Mesh(Database):
    """The tables of user kinds hold `Object[Spec]` by `ObjectKey`; `settings` never changes and so is not tracked.

    Every table of a namespaced kind has the index `namespace`; the others are what their functions in `indexes` say.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings or Settings()
        domain = self.settings.domain

        def table(name: str, **more: Any) -> Table[ObjectKey, Object[Any]]:
            return Table(self, name, namespace=indexes.namespace, **more)

        # Kubernetes
        self.services: Rows[Service] = table(
            "Service", selected=indexes.one_selected_label, network=indexes.is_network_gateway, external=indexes.is_external_name
        )
        self.pods: Rows[Pod] = table("Pod", ip=indexes.pod_ips)
        self.endpoint_slices: Rows[EndpointSlice] = table("EndpointSlice", service=indexes.slice_service, address=indexes.slice_addresses)
        self.namespaces: Rows[Namespace] = Table(self, "Namespace")
        self.nodes: Rows[Node] = Table(self, "Node")
        self.secrets: Rows[Secret] = table("Secret")
        self.config_maps: Rows[ConfigMap] = table("ConfigMap")
        # Istio
        self.virtual_services: Rows[VirtualService] = table("VirtualService", host=indexes.full_hosts(domain), wildcard=indexes.has_wildcard)
        self.destination_rules: Rows[DestinationRule] = table(
            "DestinationRule", host=indexes.full_host(domain), wildcard=indexes.wildcard_rules, hashing_wildcard=indexes.hashing_wildcards
        )
        self.gateways: Rows[Gateway] = table("Gateway")
        self.service_entries: Rows[ServiceEntry] = table(
            "ServiceEntry", host=indexes.entry_hosts, ref=indexes.entry_refs, address=indexes.endpoint_addresses, selecting=indexes.selecting
        )
        self.workload_entries: Rows[WorkloadEntryObject] = table("WorkloadEntry", address=indexes.entry_address)
        self.workload_groups: Rows[WorkloadGroup] = table("WorkloadGroup")
        self.sidecars: Rows[Sidecar] = table("Sidecar")
        self.peer_authentications: Rows[PeerAuthentication] = table("PeerAuthentication")
        self.request_authentications: Rows[RequestAuthentication] = table("RequestAuthentication")
        # Singletons, by name: "mesh" → MeshConfig (always there), "networks" → MeshNetworks
        self.mesh: Table[str, Any] = Table(self, "MeshConfig")
        # Proxies that are or were connected, by node id
        self.proxies: Table[str, Proxy] = Table(self, "Proxy")
