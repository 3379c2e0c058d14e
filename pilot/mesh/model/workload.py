"""Something that runs and can serve ports: a Pod, a WorkloadEntry, or an endpoint written into a ServiceEntry."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilot.lib.addresses import is_ip
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth, Locality

UNIX = "unix://"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload. `addresses` are the IPs of a Pod, else one: an IP, a DNS name, "unix://" and a path, or "" where only its network is known.

    `labels`: its own and where it runs. `ports`: port numbers by the names that selecting services use. `ready`: may be selected.
    `service_account` is a SPIFFE identity. `workload`: its name in telemetry. `hostname` and `subdomain`: the first two parts of
    its DNS name, where it has one below a headless service. `locality` is text, "region/zone/subzone".
    """

    name: str
    namespace: str
    addresses: tuple[str, ...]
    labels: frozenset[tuple[str, str]] = frozenset()
    ports: tuple[tuple[str, int], ...] = ()
    service_account: str = ""
    workload: str = ""
    hostname: str = ""
    subdomain: str = ""
    network: str = ""
    cluster_id: str = ""
    locality: str = ""
    node: str = ""
    weight: int = 0
    tls_mode: str = "disabled"
    hbone: bool = False
    ready: bool = True
    is_pod: bool = False

    @property
    def needs_dns(self) -> bool:
        """Returns whether only DNS resolution or a socket reaches it, so that no service with addresses of its own can use it."""
        return bool(self.addresses[0]) and not is_ip(self.addresses[0])

    def named_port(self, name: str) -> int:
        """Returns the port that it has under a name, 0 for none."""
        return next((number for n, number in self.ports if n == name), 0)

    def serves(self, labels: Mapping[str, str] | frozenset[tuple[str, str]]) -> bool:
        """Returns whether a selector with these labels selects it; an empty one selects nothing."""
        wanted = labels if isinstance(labels, frozenset) else labels.items()
        return bool(wanted) and wanted <= self.labels

    def at(self, addresses: tuple[str, ...]) -> Workload:
        """Returns the workload at other addresses."""
        return self if addresses == self.addresses else msgspec.structs.replace(self, addresses=addresses)

    def at_socket(self, port_name: str, health: EndpointHealth) -> Endpoint:
        """Returns the workload as an endpoint at its Unix socket."""
        return self.at((self.addresses[0].removeprefix(UNIX),)).endpoint(0, port_name, health)

    def endpoint(self, port: int, port_name: str, health: EndpointHealth = EndpointHealth.UNKNOWN) -> Endpoint:
        """Returns the workload as an endpoint of a service's port."""
        return Endpoint(
            addresses=self.addresses,
            port=port,
            port_name=port_name,
            namespace=self.namespace,
            labels=self.labels,
            service_account=self.service_account,
            workload=self.workload,
            hostname=self.hostname,
            subdomain=self.subdomain,
            network=self.network,
            cluster_id=self.cluster_id,
            locality=Locality.parse(self.locality),
            locality_text=self.locality,
            node=self.node,
            weight=self.weight,
            health=health,
            hbone=self.hbone,
            tls_mode=self.tls_mode,
        )
