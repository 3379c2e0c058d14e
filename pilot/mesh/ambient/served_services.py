"""The services that workloads serve, and the workload port for each service port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pilot.config.indexes import SERVICE_NAME_LABEL
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD, SERVICE
from pilot.config.kubernetes.pod import Pod
from pilot.config.networking.workload_entry import WorkloadEntry
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import derived, hub
from pilot.mesh.ambient.services import service_address
from pilot.mesh.model.address import AddressPort, ServedService, ServiceAddress
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.endpoint_slices import MULTICLUSTER_LABEL
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.pods import named_ports
from pilot.mesh.registry.services import entry_services
from pilot.mesh.tables.database import Mesh

Labels = frozenset[tuple[str, str]]
FindPort = Callable[["Selected", AddressPort], int]


class Selected(NamedTuple):
    """A service that selects a workload.

    `by_entry` says that a ServiceEntry declares the service. Its ports are then matched by name.
    """

    ref: ServiceRef
    ports: tuple[AddressPort, ...]
    by_entry: bool = False

    def served(self, find: FindPort) -> ServedService:
        """Return the service with pairs of service port and workload port.

        `find` returns the workload's port for a service port, or 0 if the workload does not serve the port.
        """
        ports = ((port.number, number) for port in self.ports if (number := find(self, port)))
        return ServedService(f"{self.ref.namespace}/{self.ref.hostname}", tuple(ports))


def served(selected: Iterable[Selected], find: FindPort) -> tuple[ServedService, ...]:
    """Return the services of a workload, sorted by name."""
    return tuple(sorted(one.served(find) for one in selected))


# -- ports of workloads ------------------------------------------------------------------------------------------------


def pod_port(pod: Pod) -> FindPort:
    """Return a function that returns a Pod's port for a service port."""
    named: Mapping[str, int] = dict(named_ports(pod))

    def find(of: Selected, port: AddressPort) -> int:
        if port.target_name:
            return named.get(port.target_name, 0)
        return (named.get(port.name, 0) if of.by_entry else 0) or port.target

    return find


def entry_port(entry: WorkloadEntry) -> FindPort:
    """Return a function that returns a workload entry's port for a service port."""

    def find(_: Selected, port: AddressPort) -> int:
        return entry.ports.get(port.target_name, 0) if port.target_name else entry.ports.get(port.name) or port.target

    return find


# -- selecting services ------------------------------------------------------------------------------------------------


@derived
def _ports(db: Mesh, ref: ServiceRef) -> tuple[AddressPort, ...] | None:
    """Return the ports of a service, or None if ztunnels do not receive it."""
    address = service_address(db, ref)
    return address.ports if address is not None else None


def _ref(db: Mesh, key: ObjectKey) -> ServiceRef:
    return ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)


@derived
def selecting_services(db: Mesh, cluster: str, namespace: str, labels: Labels) -> tuple[Selected, ...]:
    """Return the Kubernetes Services in a cluster that select workloads with these labels."""
    out: dict[ServiceRef, Selected] = {}
    for name, value in sorted(labels):
        for key in SERVICE.keys(db, "selected", (cluster, namespace, name, value)):
            row, ref = SERVICE.get(db, key), _ref(db, key.object)
            ports = _ports(db, ref) if row is not None and row.spec.selector.items() <= labels else None
            if ports is not None:
                out[ref] = Selected(ref, ports)
    return tuple(out.values())


@derived
def selecting_entries(db: Mesh, namespace: str, labels: Labels) -> tuple[Selected, ...]:
    """Return the services of the ServiceEntries whose selectors match these labels."""
    out = []
    for key in SERVICE_ENTRY.keys(db, "selecting", namespace):
        row = SERVICE_ENTRY.get(db, key)
        selector = row.spec.workload_selector if row is not None else None
        if row is not None and selector is not None and selector.labels and selector.labels.items() <= labels:
            out += declared_by(db, key, row.spec.hosts)
    return tuple(out)


def declared_by(db: Mesh, key: ObjectKey, hosts: Iterable[str]) -> list[Selected]:
    """Return the services that a ServiceEntry declares, except those that an older entry or a Kubernetes Service
    declares. Not memoised."""
    refs = [ServiceRef(host, key.namespace) for host in dict.fromkeys(hosts)]
    addresses = ((ref, service_address(db, ref)) for ref in refs)
    return [
        Selected(ref, address.ports, by_entry=True)
        for ref, address in addresses
        if address is not None and _declares(db, key, ref, address)
    ]


def _declares(db: Mesh, key: ObjectKey, ref: ServiceRef, address: ServiceAddress) -> bool:
    first = next(iter(entry_services(db, ref)), None)
    return first is not None and first.source == key and address.name == key.name


# -- Pods in EndpointSlices --------------------------------------------------------------------------------------------


@hub
def service_of_slice(db: Mesh, key: RegistryKey) -> ObjectKey | None:
    """Return the Service that owns an EndpointSlice, or None. The result does not depend on the slice's endpoints."""
    row = ENDPOINT_SLICE.get(db, key)
    if row is None or row.spec.address_type == "FQDN" or MULTICLUSTER_LABEL in row.labels:
        return None
    name = row.labels.get(SERVICE_NAME_LABEL)
    return ObjectKey(key.namespace, name) if name else None


def listing_services(db: Mesh, key: RegistryKey, row: Object[Pod], selecting: Iterable[Selected]) -> list[Selected]:
    """Return the Services that do not select a Pod, but have an EndpointSlice that contains the Pod. Not memoised."""
    refs = {one.ref for one in selecting}
    out = []
    ips = [one.ip for one in row.spec.status.pod_ips] or [row.spec.status.pod_ip]
    for slice_key in dict.fromkeys(k for ip in ips for k in ENDPOINT_SLICE.keys(db, "address", ip)):
        owner = (
            service_of_slice(db, slice_key)
            if (slice_key.cluster, slice_key.namespace) == (key.cluster, key.namespace)
            else None
        )
        ref = _ref(db, owner) if owner is not None else None
        if ref is None or ref in refs or not _names_pod(db, slice_key, key):
            continue
        ports = _ports(db, ref)
        if ports is not None:
            refs.add(ref)
            out.append(Selected(ref, ports))
    return out


@derived
def _names_pod(db: Mesh, slice_key: RegistryKey, pod: RegistryKey) -> bool:
    row = ENDPOINT_SLICE.get(db, slice_key)
    targets = (e.target_ref for e in row.spec.endpoints if e.target_ref is not None) if row is not None else ()
    return any(
        (t.kind, t.namespace or slice_key.namespace, t.name) == ("Pod", pod.namespace, pod.name) for t in targets
    )


@derived
def services_of_pod(db: Mesh, key: RegistryKey) -> tuple[ServedService, ...]:
    """Return the services that a Pod serves."""
    row = POD.get(db, key)
    if row is None:
        return ()
    labels = frozenset(row.labels.items())
    services = [*selecting_services(db, key.cluster, key.namespace, labels), *_selecting_pods(db, key, labels)]
    services += listing_services(db, key, row, services)
    return served(services, pod_port(row.spec))


def _selecting_pods(db: Mesh, key: RegistryKey, labels: Labels) -> tuple[Selected, ...]:
    local = key.cluster == db.settings.registry.cluster_id
    return selecting_entries(db, key.namespace, labels) if local else ()
