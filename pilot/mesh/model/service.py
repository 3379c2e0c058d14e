"""Services in the mesh, independent of their registry."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol


class Resolution(enum.StrEnum):
    """The method by which a service's endpoints are resolved."""

    CLIENT_SIDE_LB = "ClientSideLB"  # EDS
    DNS_LB = "DNSLB"  # STRICT_DNS
    DNS_ROUND_ROBIN_LB = "DNSRoundRobinLB"  # LOGICAL_DNS
    PASSTHROUGH = "Passthrough"  # ORIGINAL_DST
    ALIAS = "Alias"  # ExternalName: an alias of another service
    DYNAMIC_DNS = "DynamicDNS"  # dynamic forward proxy


class Registry(enum.StrEnum):
    KUBERNETES = "Kubernetes"
    EXTERNAL = "External"  # ServiceEntry


class ServiceRef(NamedTuple):
    """Key of a service. ServiceEntries in different namespaces may declare the same hostname."""

    hostname: str
    namespace: str


class Port(msgspec.Struct, frozen=True):
    """A port of a service.

    `target` is the default port of the service's endpoints: a number or the name of a container port.
    """

    name: str
    number: int
    protocol: Protocol
    target: int | str = 0


SEMANTICS, POOL_SEMANTICS = "internal.istio.io/service-semantics", "inferencepool"
"""Label and label value of a Service that represents an InferencePool."""
PUBLIC = frozenset({"*"})


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service. A ServiceEntry with several hosts declares one service for each host.

    - `addresses`: virtual IPs or CIDRs, or () if there are none.
    - `cluster_addresses`: the addresses of a Kubernetes Service in each cluster that has it. `addresses` are those in
      the first cluster.
    - `auto_addresses`: addresses from the status of a ServiceEntry, which only proxies with DNS capture use.
    - `export_to`: the namespaces in which the service is visible, {"*"} if it is public, or {} if it is not visible.
      "." has been replaced with the name of the namespace, and the mesh's defaults have been applied.
    - `source`: the object that declares the service, from which `created` and `labels` are taken.
    """

    hostname: str
    namespace: str
    name: str
    registry: Registry
    source: ObjectKey
    ports: tuple[Port, ...]
    resolution: Resolution
    addresses: tuple[str, ...] = ()
    cluster_addresses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    auto_addresses: tuple[str, ...] = ()
    export_to: frozenset[str] = PUBLIC
    created: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    mesh_external: bool = False
    external_name: str = ""
    service_accounts: tuple[str, ...] = ()  # extra SPIFFE identities or, for a ServiceEntry, its subjectAltNames
    publish_not_ready: bool = False
    node_local: bool = False  # internalTrafficPolicy: Local
    traffic_distribution: str = ""  # "", PreferSameZone or PreferSameNode
    race_connect: bool = False  # istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT
    session_label: str = ""  # value of istio.io/persistent-session
    session_header_label: str = ""  # value of istio.io/persistent-session-header

    @property
    def ref(self) -> ServiceRef:
        return ServiceRef(self.hostname, self.namespace)

    @property
    def is_pool(self) -> bool:
        """Return True if the service represents an InferencePool. The first port of such a service has the endpoints of
        all ports."""
        return (SEMANTICS, POOL_SEMANTICS) in self.labels

    def port_position(self, number: int) -> int:
        """Return the position of a port among the ports of the service, or 0 if the service does not have it."""
        return next((index for index, p in enumerate(self.ports) if p.number == number), 0)

    def port(self, number: int) -> Port | None:
        """Return the port with this number. If TCP and UDP share the number, return the first of the two ports."""
        for port in self.ports:
            if port.number == number:
                return port
        return None

    def addresses_in(self, cluster: str) -> tuple[str, ...]:
        """Return the addresses that clients in a cluster use: those in the cluster or, if it has none, `addresses`."""
        return next((addresses for name, addresses in self.cluster_addresses if name == cluster), self.addresses)
