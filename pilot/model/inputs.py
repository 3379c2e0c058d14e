"""Every input table and its indexes, declared once. Derived functions take a `Mesh` and read these, nothing else."""
from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from pilot.derive import Database, Table
from pilot.model.config.object import Object, ObjectKey
from pilot.model.proxy import Proxy
from pilot.settings import Settings

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

        def rule_host(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            return (qualify(o.spec.host, key.namespace, domain).lower(),)

        def pod_ips(_: ObjectKey, o: Object[Any]) -> Iterable[str]:
            return tuple(i.ip for i in o.spec.status.pod_ips) or ((o.spec.status.pod_ip,) if o.spec.status.pod_ip else ())

        def slice_service(key: ObjectKey, o: Object[Any]) -> Iterable[Hashable]:
            name = o.labels.get(SERVICE_NAME_LABEL)
            return (ObjectKey(key.namespace, name),) if name else ()

        def table(name: str, **indexes: Any) -> Table[ObjectKey, Object[Any]]:
            return Table(self, name, namespace=namespace, **indexes)

        # Kubernetes
        self.services = table("Service")
        self.pods = table("Pod", ip=pod_ips)  # by address
        self.endpoint_slices = table("EndpointSlice", service=slice_service)  # by ObjectKey of the Service
        self.namespaces: Table[ObjectKey, Object[Any]] = Table(self, "Namespace")
        self.nodes: Table[ObjectKey, Object[Any]] = Table(self, "Node")
        self.secrets = table("Secret")
        self.config_maps = table("ConfigMap")
        # Istio; `host` is by full lower-case host name as written (wildcards included)
        self.virtual_services = table("VirtualService", host=hosts)
        self.destination_rules = table("DestinationRule", host=rule_host)
        self.gateways = table("Gateway")
        self.service_entries = table("ServiceEntry", host=hosts)
        self.workload_entries = table("WorkloadEntry")
        self.workload_groups = table("WorkloadGroup")
        self.sidecars = table("Sidecar")
        self.peer_authentications = table("PeerAuthentication")
        self.request_authentications = table("RequestAuthentication")
        # Singletons, by name: "mesh" → MeshConfig (always there), "networks" → MeshNetworks
        self.mesh: Table[str, Any] = Table(self, "MeshConfig")
        # Proxies that are or were connected, by node id
        self.proxies: Table[str, Proxy] = Table(self, "Proxy")
