"""What ztunnels are told of: workloads and services, each under one name."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.protocol import Protocol
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.waypoint import ApplicationTunnel, WaypointAddress

Kind = Literal[
    "Pod", "WorkloadEntry", "ServiceEntry", "EndpointSlice", "Service", "NetworkGateway", "SplitHorizonWorkload"
]
_GROUPS = {
    "Pod": "",
    "WorkloadEntry": "networking.istio.io",
    "ServiceEntry": "networking.istio.io",
    "EndpointSlice": "discovery.k8s.io",
}


class AddressKey(NamedTuple):
    """Names something that is told of. A workload is of an object of a `cluster`; where the object has several, `part` says which: an address.

    The name of a service is its host name. A gateway into a network has the network as `namespace`, its address as `name` and its port as `part`;
    what stands for the workloads of a service in another network has that network as `cluster`, and its gateway as `part`.
    """

    kind: Kind
    cluster: str
    namespace: str
    name: str
    part: str = ""

    @property
    def key(self) -> RegistryKey:
        """Returns the key of the object that a workload is of."""
        return RegistryKey(self.cluster, self.namespace, self.name)

    @property
    def object(self) -> ObjectKey:
        """Returns the same without the cluster."""
        return ObjectKey(self.namespace, self.name)

    @property
    def uid(self) -> str:
        """Returns the name of its resource."""
        if self.kind == "Service":
            return f"{self.namespace}/{self.name}"
        if self.kind == "NetworkGateway":
            return f"NetworkGateway/{self.namespace}/{self.name}/{self.part}"
        if self.kind == "SplitHorizonWorkload":
            return f"{self.cluster}/SplitHorizonWorkload/{self.part}/{self.namespace}/{self.name}"
        return "/".join(
            (self.cluster, _GROUPS[self.kind], self.kind, self.namespace, self.name, *filter(None, (self.part,)))
        )


def parse_uid(text: str) -> AddressKey | None:
    """Returns what a text names as the uid of a workload of an object; None where it is no such uid."""
    parts = text.split("/", 5)
    if len(parts) < 5 or _GROUPS.get(parts[2]) != parts[1]:
        return None
    return AddressKey(parts[2], parts[0], *parts[3:])  # type: ignore[arg-type]


class AddressPort(NamedTuple):
    """A port of a service. `target` is the number that workloads have it at, 0 where they have it under `target_name`."""

    number: int
    target: int = 0
    target_name: str = ""
    name: str = ""
    protocol: Protocol = Protocol.UNSUPPORTED


class NetworkAddress(NamedTuple):
    """An IP address in a network; `prefix` is the length of the prefix where it stands for a range."""

    network: str
    ip: str
    prefix: int | None = None

    def __str__(self) -> str:
        return f"{self.network}/{self.ip}" if self.prefix is None else f"{self.network}/{self.ip}/{self.prefix}"


class LoadBalancing(NamedTuple):
    """How the workloads of a service are chosen, by the words of the wire."""

    mode: Literal["UNSPECIFIED_MODE", "STRICT", "FAILOVER", "PASSTHROUGH"] = "UNSPECIFIED_MODE"
    scopes: tuple[Literal["REGION", "ZONE", "SUBZONE", "NODE", "CLUSTER", "NETWORK"], ...] = ()
    all_healths: bool = False


class WeightedWaypoint(NamedTuple):
    address: WaypointAddress
    weight: int


class ServiceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A service as ztunnels know it. `canonical`: of those of one host name it is the one that other namespaces mean. `private`: clients of other
    namespaces do not know it."""

    name: str
    namespace: str
    hostname: str
    addresses: tuple[NetworkAddress, ...] = ()
    ports: tuple[AddressPort, ...] = ()
    subject_alt_names: tuple[str, ...] = ()
    waypoint: WaypointAddress | None = None
    weighted: tuple[WeightedWaypoint, ...] = ()
    balancing: LoadBalancing | None = None
    families: Literal["AUTOMATIC", "IPV4_ONLY", "IPV6_ONLY", "DUAL"] = "AUTOMATIC"
    canonical: bool = False
    ingress: bool = False
    private: bool = False


class ServedService(NamedTuple):
    """A service that a workload serves, as `namespace/hostname`, and the ports by which it does: number and target."""

    service: str
    ports: tuple[tuple[int, int], ...]


class WorkloadAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as ztunnels know it. `addresses` are its IPs; without any, `hostname` is looked up.

    `tunnels`: it takes HBONE, by its node's ztunnel or, where `native`, by itself. `tunnel`: how connections are handed to it.
    `policies`: those that select it, as `namespace/name`. `capacity`: its share of load, 0 for one. `is_compute`: it runs something, and does not
    merely stand for an address.
    """

    uid: str
    name: str
    namespace: str = ""
    addresses: tuple[str, ...] = ()
    hostname: str = ""
    network: str = ""
    gateway: WaypointAddress | None = None
    cluster: str = ""
    trust_domain: str = ""
    service_account: str = ""
    node: str = ""
    workload: str = ""
    canonical: tuple[str, str] = ("", "")
    locality: Locality = Locality()
    waypoint: WaypointAddress | None = None
    tunnel: ApplicationTunnel | None = None
    tunnels: bool = False
    native: bool = False
    services: tuple[ServedService, ...] = ()
    policies: tuple[str, ...] = ()
    healthy: bool = True
    host_network: bool = False
    capacity: int = 0
    is_compute: bool = True

    @property
    def aliases(self) -> tuple[str, ...]:
        """Returns the other names that it is asked for by."""
        return tuple(f"{self.network}/{ip}" for ip in self.addresses)
