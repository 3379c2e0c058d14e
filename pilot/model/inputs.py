"""Every input table and its indexes, declared once. Derived functions take a `Mesh` and read these, nothing else."""
from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from pilot.derive import Database, Table
from pilot.lib.labels import NETWORK
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
from pilot.model.consistent_hash import hashes
from pilot.model.proxy import Proxy
from pilot.model.service import ServiceRef
from pilot.settings import Settings

S = TypeVar("S")
Rows = Table[ObjectKey, Object[S]]
SERVICE_NAME_LABEL = "kubernetes.io/service-name"


def qualify(host: str, namespace: str, domain: str) -> str:
    """A host as a user writes it in a namespace, as a full name: without a dot it is a service of that namespace."""
    return host if "." in host or host == "*" else f"{host}.{namespace}.svc.{domain}"


class Mesh(Database):
    """The tables of user kinds hold `Object[Spec]` by `ObjectKey`; `settings` never changes and so is not tracked.

    Indexes: every table of a namespaced kind has `namespace`; what else there is stands below.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings or Settings()
        domain = self.settings.domain

        def namespace(key: ObjectKey, _: Any) -> Iterable[str]:
            return (key.namespace,)

        def hosts(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return {qualify(h, key.namespace, domain).lower() for h in o.spec.hosts}

        def entry_hosts(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return set(o.spec.hosts)

        def entry_refs(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return {ServiceRef(h, key.namespace) for h in o.spec.hosts}

        def rule_host(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (qualify(o.spec.host, key.namespace, domain).lower(),)

        def wildcard_rules(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (key.namespace,) if o.spec.host.startswith("*") else ()

        def pod_ips(_: ObjectKey, o: Object[Any]) -> Iterable[str]:
            return tuple(i.ip for i in o.spec.status.pod_ips) or ((o.spec.status.pod_ip,) if o.spec.status.pod_ip else ())

        def slice_service(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            name = o.labels.get(SERVICE_NAME_LABEL)
            return (ObjectKey(key.namespace, name),) if name else ()

        def slice_addresses(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return {a for e in o.spec.endpoints for a in e.addresses}

        def entry_address(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (o.spec.address,)

        def endpoint_addresses(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return {e.address for e in o.spec.endpoints}

        def selecting(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (key.namespace,) if o.spec.workload_selector is not None else ()

        def one_selected_label(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return ((key.namespace, *min(o.spec.selector.items())),) if o.spec.selector else ()

        def is_network_gateway(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (True,) if NETWORK in o.labels else ()

        def is_external_name(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (True,) if o.spec.type == "ExternalName" else ()

        def has_wildcard(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (True,) if any(h.startswith("*") for h in o.spec.hosts) else ()

        def hashing_wildcards(_: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (True,) if o.spec.host.startswith("*") and hashes(o.spec) else ()

        def table(name: str, **indexes: Any) -> Table[ObjectKey, Object[Any]]:
            return Table(self, name, namespace=namespace, **indexes)

        # Kubernetes
        # by namespace, key and value of the first label that it selects; whether it is labelled with a network; whether it is an alias
        self.services: Rows[Service] = table("Service", selected=one_selected_label, network=is_network_gateway, external=is_external_name)
        self.pods: Rows[Pod] = table("Pod", ip=pod_ips)  # by address
        # by ObjectKey of the Service, by address
        self.endpoint_slices: Rows[EndpointSlice] = table("EndpointSlice", service=slice_service, address=slice_addresses)
        self.namespaces: Rows[Namespace] = Table(self, "Namespace")
        self.nodes: Rows[Node] = Table(self, "Node")
        self.secrets: Rows[Secret] = table("Secret")
        self.config_maps: Rows[ConfigMap] = table("ConfigMap")
        # Istio; `host` is by full lower-case host name as written (wildcards included)
        self.virtual_services: Rows[VirtualService] = table("VirtualService", host=hosts, wildcard=has_wildcard)  # whether any is a wildcard
        self.destination_rules: Rows[DestinationRule] = table(
            "DestinationRule", host=rule_host, wildcard=wildcard_rules, hashing_wildcard=hashing_wildcards
        )  # of wildcard hosts by namespace; those of them that ask for consistent hashing
        self.gateways: Rows[Gateway] = table("Gateway")
        # by host as it is, by ServiceRef, by address of its endpoints; those with a workloadSelector by namespace
        self.service_entries: Rows[ServiceEntry] = table(
            "ServiceEntry", host=entry_hosts, ref=entry_refs, address=endpoint_addresses, selecting=selecting
        )
        self.workload_entries: Rows[WorkloadEntryObject] = table("WorkloadEntry", address=entry_address)
        self.workload_groups: Rows[WorkloadGroup] = table("WorkloadGroup")
        self.sidecars: Rows[Sidecar] = table("Sidecar")
        self.peer_authentications: Rows[PeerAuthentication] = table("PeerAuthentication")
        self.request_authentications: Rows[RequestAuthentication] = table("RequestAuthentication")
        # Singletons, by name: "mesh" → MeshConfig (always there), "networks" → MeshNetworks
        self.mesh: Table[str, Any] = Table(self, "MeshConfig")
        # Proxies that are or were connected, by node id
        self.proxies: Table[str, Proxy] = Table(self, "Proxy")
