"""Resources served to ztunnels: workloads and services."""

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

IPFamilies = Literal["AUTOMATIC", "IPV4_ONLY", "IPV6_ONLY", "DUAL"]


class AddressKey(NamedTuple):
    """Key of an address resource.

    A workload is identified by its cluster and the object that declares it. If the object declares several workloads,
    `part` is the address of the workload. The name of a service is its hostname.

    For a network gateway, `namespace` is the network, `name` is the gateway's address and `part` is its port. For a
    split-horizon workload, which represents the workloads of a service in another network, `cluster` is that network
    and `part` is the gateway.
    """

    kind: Kind
    cluster: str
    namespace: str
    name: str
    part: str = ""

    @property
    def key(self) -> RegistryKey:
        """Return the key of the object that declares a workload."""
        return RegistryKey(self.cluster, self.namespace, self.name)

    @property
    def object(self) -> ObjectKey:
        """Return the key of the object that declares a workload, without the cluster."""
        return ObjectKey(self.namespace, self.name)

    @property
    def uid(self) -> str:
        """Return the resource name."""
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
    """Return the key for the uid of a workload that an object declares, or None if `text` is not such a uid."""
    parts = text.split("/", 5)
    if len(parts) < 5 or _GROUPS.get(parts[2]) != parts[1]:
        return None
    return AddressKey(parts[2], parts[0], *parts[3:])  # type: ignore[arg-type]


class AddressPort(NamedTuple):
    """A port of a service.

    `target` is the port number of the service's workloads. It is 0 if each workload defines the number under
    `target_name`.
    """

    number: int
    target: int = 0
    target_name: str = ""
    name: str = ""
    protocol: Protocol = Protocol.UNSUPPORTED


class NetworkAddress(NamedTuple):
    """An IP address in a network, or a range of addresses if the prefix length `prefix` is set."""

    network: str
    ip: str
    prefix: int | None = None

    def __str__(self) -> str:
        return f"{self.network}/{self.ip}" if self.prefix is None else f"{self.network}/{self.ip}/{self.prefix}"


class LoadBalancing(NamedTuple):
    """Load balancing settings of a service. The values are those of the workload API."""

    mode: Literal["UNSPECIFIED_MODE", "STRICT", "FAILOVER", "PASSTHROUGH"] = "UNSPECIFIED_MODE"
    scopes: tuple[Literal["REGION", "ZONE", "SUBZONE", "NODE", "CLUSTER", "NETWORK"], ...] = ()
    all_healths: bool = False


class WeightedWaypoint(NamedTuple):
    address: WaypointAddress
    weight: int


class ServiceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A service as sent to ztunnels.

    `canonical` marks the service that clients in other namespaces use for the hostname. `private` hides the service
    from clients in other namespaces.
    """

    name: str
    namespace: str
    hostname: str
    addresses: tuple[NetworkAddress, ...] = ()
    ports: tuple[AddressPort, ...] = ()
    subject_alt_names: tuple[str, ...] = ()
    waypoint: WaypointAddress | None = None
    weighted: tuple[WeightedWaypoint, ...] = ()
    balancing: LoadBalancing | None = None
    families: IPFamilies = "AUTOMATIC"
    canonical: bool = False
    ingress: bool = False
    private: bool = False


class ServedService(NamedTuple):
    """A service that a workload serves: its `namespace/hostname`, and the pairs of service port and workload port."""

    service: str
    ports: tuple[tuple[int, int], ...]


class WorkloadAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as sent to ztunnels. `addresses` are its IPs. If there are none, `hostname` is resolved.

    - `tunnels`: the workload accepts HBONE, either itself if `native`, or through the ztunnel on its node.
    - `tunnel`: how connections are forwarded to the application.
    - `policies`: the policies that select the workload, as `namespace/name`.
    - `capacity`: its relative share of the load. 0 is treated as 1.
    - `is_compute`: whether the workload runs code, rather than only representing an address.
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
        """Return the other names by which clients can request the workload."""
        return tuple(f"{self.network}/{ip}" for ip in self.addresses)
