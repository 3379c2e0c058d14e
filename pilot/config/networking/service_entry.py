"""networking.istio.io ServiceEntry. https://istio.io/latest/docs/reference/config/networking/service-entry/"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pilot.config.base import Lenient, Strict, UInt32
from pilot.config.networking.sidecar import WorkloadSelector
from pilot.config.networking.workload_entry import WorkloadEntry
from pilot.config.protocol import parse_protocol

Location = Literal["MESH_EXTERNAL", "MESH_INTERNAL"]
Resolution = Literal["NONE", "STATIC", "DNS", "DNS_ROUND_ROBIN", "DYNAMIC_DNS"]
MAX_REPEATED = 100
"""Maximum number of endpoints in a cluster that result from repeating them for each address."""


class ServiceEntry(Strict, frozen=True):
    """A service that has no Kubernetes Service. `status` contains the addresses that a controller has allocated."""

    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    ports: tuple[ServicePort, ...] = ()
    location: Location = "MESH_EXTERNAL"
    resolution: Resolution = "NONE"
    endpoints: tuple[WorkloadEntry, ...] = ()
    workload_selector: WorkloadSelector | None = None
    export_to: tuple[str, ...] = ()
    subject_alt_names: tuple[str, ...] = ()
    status: ServiceEntryStatus | None = None


def copies(endpoints: int, addresses: int) -> int:
    """Return how often a cluster repeats the endpoints of a ServiceEntry: for each address, within `MAX_REPEATED`."""
    return max(1, min(addresses, MAX_REPEATED // max(1, endpoints)))


def lower_case_hosts(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object's hosts in lower case, because hostnames are case-insensitive."""
    hosts = (plain.get("spec") or {}).get("hosts")
    return {"hosts": [h.lower() if isinstance(h, str) else h for h in hosts]} if isinstance(hosts, list) else {}


class ServicePort(Strict, frozen=True):
    number: UInt32 = 0
    protocol: str = ""
    name: str = ""
    target_port: UInt32 = 0


class ServiceEntryAddress(Lenient, frozen=True):
    value: str = ""
    host: str = ""


class ServiceEntryStatus(Lenient, frozen=True):
    addresses: tuple[ServiceEntryAddress, ...] = ()


CLUSTER_ENDPOINTS, CHAIN_ENDPOINTS = 40, 24
"""Numbers of endpoints that cost as much as a cluster with its virtual host or filter chain, and as another chain."""
WORKLOAD_ENDPOINTS = 3
"""Number of inline endpoints that cost as much as an endpoint at a selected workload, because changes of workloads are
not committed in portions."""
HOST_ENDPOINTS, PORT_ENDPOINTS = 30, 100
"""Numbers of endpoints that cost as much as the service of another host, and as a listener and its routes."""


def count_expanded(entry: ServiceEntry, selected: int = 0) -> int:
    """Return the number of endpoints in all clusters of a ServiceEntry. `selected` is the number of workloads that it
    selects. Each endpoint at one of them counts as `WORKLOAD_ENDPOINTS`.

    It has a cluster for each host and port, which counts as `CLUSTER_ENDPOINTS`. Unless the port is HTTP, it also has a
    filter chain for each address after the first one, which counts as `CHAIN_ENDPOINTS`. Each host after the first one
    counts as `HOST_ENDPOINTS`.
    """
    addresses = len(entry.addresses)
    endpoints = selected * WORKLOAD_ENDPOINTS
    if entry.workload_selector is None:
        endpoints = len(entry.endpoints) * copies(len(entry.endpoints), addresses)
    chains = max(0, addresses - 1) * sum(not parse_protocol(port.protocol).is_http for port in entry.ports)
    of_host = HOST_ENDPOINTS + len(entry.ports) * (CLUSTER_ENDPOINTS + endpoints) + chains * CHAIN_ENDPOINTS
    return max(0, len(entry.hosts) * of_host - HOST_ENDPOINTS)
