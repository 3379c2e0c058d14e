"""Workloads: Pods, WorkloadEntries and endpoints of ServiceEntries."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilot.lib.addresses import is_ip
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth, Locality

UNIX = "unix://"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload.

    - `addresses`: the IPs of a Pod. Other workloads have one IP, DNS name or "unix://" path, or "" if only the network
      is known.
    - `labels`: its own labels and those of its topology.
    - `ports`: pairs of port names, as used by the services that select it, and port numbers.
    - `ready`: whether service selectors may match it.
    - `service_account`: a SPIFFE identity.
    - `workload`: its name in telemetry.
    - `hostname`, `subdomain`: the first two labels of its DNS name in a headless service.
    - `locality`: "region/zone/subzone".
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
        """Return True if the address of the workload is a DNS name or a Unix socket.

        Services with virtual IPs cannot use such a workload.
        """
        return bool(self.addresses[0]) and not is_ip(self.addresses[0])

    def named_port(self, name: str) -> int:
        """Return the number of a named port, or 0 if the workload has no such port."""
        return next((number for n, number in self.ports if n == name), 0)

    def serves(self, labels: Mapping[str, str] | frozenset[tuple[str, str]]) -> bool:
        """Return True if a selector with these labels selects the workload. An empty selector selects every
        workload."""
        selector = labels if isinstance(labels, frozenset) else labels.items()
        return selector <= self.labels

    def at(self, addresses: tuple[str, ...]) -> Workload:
        """Return a copy of the workload with other addresses."""
        return self if addresses == self.addresses else msgspec.structs.replace(self, addresses=addresses)

    def at_socket(self, port_name: str, health: EndpointHealth) -> Endpoint:
        """Return the endpoint at the workload's Unix socket."""
        return self.at((self.addresses[0].removeprefix(UNIX),)).endpoint(0, port_name, health)

    def endpoint(self, port: int, port_name: str, health: EndpointHealth = EndpointHealth.UNKNOWN) -> Endpoint:
        """Return the endpoint for a service port at this workload."""
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
