"""A service of the mesh, whichever registry it comes from."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol


class Resolution(enum.StrEnum):
    """The way in which the endpoints of a service are found."""

    CLIENT_SIDE_LB = "ClientSideLB"  # EDS
    DNS_LB = "DNSLB"  # STRICT_DNS
    DNS_ROUND_ROBIN_LB = "DNSRoundRobinLB"  # LOGICAL_DNS
    PASSTHROUGH = "Passthrough"  # ORIGINAL_DST
    ALIAS = "Alias"  # ExternalName: the service that it names
    DYNAMIC_DNS = "DynamicDNS"  # dynamic forward proxy


class Registry(enum.StrEnum):
    KUBERNETES = "Kubernetes"
    EXTERNAL = "External"  # ServiceEntry


class ServiceRef(NamedTuple):
    """The name of a service. Two ServiceEntries of different namespaces may claim one hostname."""

    hostname: str
    namespace: str


class Port(msgspec.Struct, frozen=True):
    """A port of a service. `target` is what its endpoints use unless they say otherwise: a number, or a name of a pod's port."""

    name: str
    number: int
    protocol: Protocol
    target: int | str = 0


SEMANTICS, POOL_SEMANTICS = "internal.istio.io/service-semantics", "inferencepool"
"""The label of a Service that stands for an InferencePool."""
PUBLIC = frozenset({"*"})


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service. For a ServiceEntry with several hosts there is one service a host.

    `addresses`: virtual IPs or CIDRs, () where it has none. `cluster_addresses`: those of every cluster that has the Kubernetes
    Service, the first cluster's being `addresses`. `auto_addresses`: those of a ServiceEntry's status, which only
    proxies with DNS capture use. `export_to`: namespaces that may see it, {"*"} public, {} nobody; already resolved ("." is the
    own namespace's name, mesh defaults applied). `created`, `labels`: of the object that declares it. `source`: that object.
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
        """Returns whether the service stands for an InferencePool: its first port is for the endpoints of all of them."""
        return (SEMANTICS, POOL_SEMANTICS) in self.labels

    def port(self, number: int) -> Port | None:
        """Returns the port of that number, the first where UDP and TCP share it."""
        return next((p for p in self.ports if p.number == number), None)

    def addresses_in(self, cluster: str) -> tuple[str, ...]:
        """Returns the addresses that clients in a cluster use: those of that cluster where it has the service, else `addresses`."""
        return next((addresses for name, addresses in self.cluster_addresses if name == cluster), self.addresses)
