"""Services that workloads serve, and the ports by which they do."""

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
    """A service that selects a workload. `by_entry`: a ServiceEntry declares it, whose ports have the names of the workloads' ports."""

    ref: ServiceRef
    ports: tuple[AddressPort, ...]
    by_entry: bool = False

    def served(self, find: FindPort) -> ServedService:
        """Returns it as served by a workload; `find` tells the workload's port of a port, 0 where it has none."""
        found = ((port.number, number) for port in self.ports if (number := find(self, port)))
        return ServedService(f"{self.ref.namespace}/{self.ref.hostname}", tuple(found))


def served(selected: Iterable[Selected], find: FindPort) -> tuple[ServedService, ...]:
    """Returns the services of a workload, by name."""
    return tuple(sorted(one.served(find) for one in selected))


# -- ports of workloads ----------------------------------------------------------------------------------------------------


def pod_port(pod: Pod) -> FindPort:
    """Returns how a Pod's port is told."""
    named: Mapping[str, int] = dict(named_ports(pod))

    def find(of: Selected, port: AddressPort) -> int:
        if port.target_name:
            return named.get(port.target_name, 0)
        return (named.get(port.name, 0) if of.by_entry else 0) or port.target

    return find


def entry_port(entry: WorkloadEntry) -> FindPort:
    """Returns how the port of a workload entry is told."""

    def find(_: Selected, port: AddressPort) -> int:
        return entry.ports.get(port.target_name, 0) if port.target_name else entry.ports.get(port.name) or port.target

    return find


# -- services that select --------------------------------------------------------------------------------------------------


@derived
def _ports(db: Mesh, ref: ServiceRef) -> tuple[AddressPort, ...] | None:
    """Returns the ports of a service, None where ztunnels are not told of it."""
    found = service_address(db, ref)
    return found.ports if found is not None else None


def _ref(db: Mesh, key: ObjectKey) -> ServiceRef:
    return ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)


@derived
def selecting_services(db: Mesh, cluster: str, namespace: str, labels: Labels) -> tuple[Selected, ...]:
    """Returns the Kubernetes Services of a cluster that select workloads with these labels."""
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
    """Returns the services of ServiceEntries that select workloads with these labels."""
    out = []
    for key in SERVICE_ENTRY.keys(db, "selecting", namespace):
        row = SERVICE_ENTRY.get(db, key)
        selector = row.spec.workload_selector if row is not None else None
        if row is not None and selector is not None and selector.labels and selector.labels.items() <= labels:
            out += declared_by(db, key, row.spec.hosts)
    return tuple(out)


def declared_by(db: Mesh, key: ObjectKey, hosts: Iterable[str]) -> list[Selected]:
    """Returns the services that a ServiceEntry declares: not those of an older one, or of a Kubernetes Service. No node of its own."""
    refs = [ServiceRef(host, key.namespace) for host in dict.fromkeys(hosts)]
    found = ((ref, service_address(db, ref)) for ref in refs)
    return [
        Selected(ref, made.ports, by_entry=True)
        for ref, made in found
        if made is not None and _declares(db, key, ref, made)
    ]


def _declares(db: Mesh, key: ObjectKey, ref: ServiceRef, made: ServiceAddress) -> bool:
    first = next(iter(entry_services(db, ref)), None)
    return first is not None and first.source == key and made.name == key.name


# -- Pods that EndpointSlices name -----------------------------------------------------------------------------------------


@hub
def service_of_slice(db: Mesh, key: RegistryKey) -> ObjectKey | None:
    """Returns the Service that an EndpointSlice is of, None where it is of none here. What its endpoints are makes no difference."""
    row = ENDPOINT_SLICE.get(db, key)
    if row is None or row.spec.address_type == "FQDN" or MULTICLUSTER_LABEL in row.labels:
        return None
    name = row.labels.get(SERVICE_NAME_LABEL)
    return ObjectKey(key.namespace, name) if name else None


def listing_services(db: Mesh, key: RegistryKey, row: Object[Pod], known: Iterable[Selected]) -> list[Selected]:
    """Returns the Services without a selector whose EndpointSlices name a Pod. No node of its own."""
    seen = {one.ref for one in known}
    out = []
    ips = [one.ip for one in row.spec.status.pod_ips] or [row.spec.status.pod_ip]
    for slice_key in dict.fromkeys(k for ip in ips for k in ENDPOINT_SLICE.keys(db, "address", ip)):
        named = (
            service_of_slice(db, slice_key)
            if (slice_key.cluster, slice_key.namespace) == (key.cluster, key.namespace)
            else None
        )
        ref = _ref(db, named) if named is not None else None
        if ref is None or ref in seen or not _names_pod(db, slice_key, key):
            continue
        ports = _ports(db, ref)
        if ports is not None:
            seen.add(ref)
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
    """Returns the services that a Pod serves."""
    row = POD.get(db, key)
    if row is None:
        return ()
    labels = frozenset(row.labels.items())
    found = [*selecting_services(db, key.cluster, key.namespace, labels), *_selecting_pods(db, key, labels)]
    found += listing_services(db, key, row, found)
    return served(found, pod_port(row.spec))


def _selecting_pods(db: Mesh, key: RegistryKey, labels: Labels) -> tuple[Selected, ...]:
    own = key.cluster == db.settings.registry.cluster_id
    return selecting_entries(db, key.namespace, labels) if own else ()
