"""Service, and the kinds ServiceExport and ServiceImport of the Multi-Cluster Services API.

https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/
https://multicluster.sigs.k8s.io/concepts/multicluster-services-api/
"""

from __future__ import annotations

import msgspec

from pilot.config.base import Int32, Lenient

EXPORT_TO = "networking.istio.io/exportTo"  # annotation: the namespaces that see the Service, separated by commas

MAX_PORTS = 1000
"""Maximum number of ports of a Service that are used. Each port has clusters, endpoints, listeners and routes."""
FREE_PORTS = 2
"""Number of ports of each Service that do not count in the limit for the Services of a namespace."""


class ServicePort(Lenient, frozen=True):
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None
    port: Int32 = 0
    target_port: int | str | None = None
    node_port: Int32 = 0


class LoadBalancerIngress(Lenient, frozen=True):
    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(Lenient, frozen=True):
    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Lenient, frozen=True):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Lenient, frozen=True):
    """A Service: the fields of its spec, and its `status`. The Service is headless if `cluster_ip` is "None"."""

    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    ip_families: tuple[str, ...] = ()
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    external_name: str = ""
    publish_not_ready_addresses: bool = False
    internal_traffic_policy: str = "Cluster"
    external_traffic_policy: str = ""
    traffic_distribution: str = ""
    status: ServiceStatus = ServiceStatus()

    @property
    def first_ports(self) -> tuple[ServicePort, ...]:
        """Return the first `MAX_PORTS` ports."""
        return self.ports[:MAX_PORTS]


class ServiceExport(Lenient, frozen=True):
    """Exports the Service with the same name from its cluster to other clusters."""


class ServiceImport(Lenient, frozen=True):
    """A service that other clusters export, as one cluster sees it. `ips` are its addresses in that cluster."""

    ips: tuple[str, ...] = ()
