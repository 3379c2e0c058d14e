"""The workloads that ztunnels receive for ServiceEntry endpoints, and for EndpointSlice endpoints that are not Pods."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE
from pilot.config.kubernetes.endpoint_slice import EndpointSlice, SliceEndpoint
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.networking.workload_entry import WorkloadEntry
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.lib import labels as label
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.attachments import instance_of, subject_of, workload_attachment
from pilot.mesh.ambient.policies import endpoint_policies, waypoint_policies
from pilot.mesh.ambient.served_services import Selected, declared_by, entry_port, served, service_of_slice
from pilot.mesh.ambient.services import service_address
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.ambient.workloads import of_entry, tunnels, used_waypoints, workload_trust_domain
from pilot.mesh.model.address import AddressKey, ServedService, WorkloadAddress
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.tables.clusters import is_included
from pilot.mesh.tables.database import Mesh

_DNS_RESOLUTIONS = ("DNS", "DNS_ROUND_ROBIN", "DYNAMIC_DNS")


# -- ServiceEntries ----------------------------------------------------------------------------------------------------


@derived
def endpoints_of_entry(db: Mesh, key: ObjectKey) -> Mapping[AddressKey, WorkloadAddress]:
    """Return the workloads that a ServiceEntry declares.

    These are its endpoints or, if it has none and DNS resolves its hosts, the hosts. There are no workloads if older
    ServiceEntries declare all of its services.
    """
    row = SERVICE_ENTRY.get(db, key) if db.settings.ambient.enabled else None
    selected = declared_by(db, key, row.spec.hosts) if row is not None else []
    if row is None or not selected:
        return {}
    cluster, workloads = db.settings.registry.cluster_id, {}
    for entry, of in _entries(row.spec, selected):
        at = AddressKey("ServiceEntry", cluster, key.namespace, key.name, entry.address)
        if at not in workloads:
            workloads[at] = _endpoint(db, at, row, entry, of)
    return workloads


def _entries(spec: ServiceEntry, selected: list[Selected]) -> list[tuple[WorkloadEntry, list[Selected]]]:
    if spec.endpoints:
        return [(entry, selected) for entry in spec.endpoints if entry.address]
    if spec.resolution not in _DNS_RESOLUTIONS or spec.workload_selector is not None:
        return []
    return [(WorkloadEntry(address=one.ref.hostname), [one]) for one in selected]


def _endpoint(
    db: Mesh, at: AddressKey, row: Object[ServiceEntry], entry: WorkloadEntry, selected: list[Selected]
) -> WorkloadAddress:
    services = served(selected, entry_port(entry))
    base = WorkloadAddress(
        uid=at.uid,
        name=row.name,
        namespace=row.namespace,
        workload=row.name,
        canonical=label.canonical_service(row.labels, row.name),
        services=services,
    )
    subject = subject_of(row.namespace, entry.labels)
    own, used = (
        (instance_of(db, subject), workload_attachment(db, subject).waypoint) if row.spec.endpoints else (None, None)
    )
    itself, main = (waypoint(db, key) if key is not None else None for key in (own, used))
    policies = endpoint_policies(db, row.namespace, frozenset(row.labels.items()))
    return msgspec.structs.replace(
        of_entry(db, base, entry),
        waypoint=main.address if main is not None else None,
        tunnel=itself.tunnel if itself is not None else None,
        policies=(*policies, *waypoint_policies(db, used_waypoints(db, services, used))),
        **tunnels(row.labels, row.annotations),
    )


# -- EndpointSlices ----------------------------------------------------------------------------------------------------


@derived
def endpoints_of_slice(db: Mesh, key: RegistryKey) -> Mapping[AddressKey, WorkloadAddress]:
    """Return the workloads that represent the endpoints of an EndpointSlice, except Pods.

    Only their addresses are known. Several workloads may have the same address.
    """
    owner = service_of_slice(db, key) if is_included(db, key.cluster) else None
    row = ENDPOINT_SLICE.get(db, key) if owner is not None else None
    if row is None or owner is None:
        return {}
    ref = ServiceRef(kubernetes_hostname(owner.name, owner.namespace, db.settings.registry.domain), owner.namespace)
    workloads: dict[AddressKey, WorkloadAddress] = {}
    others = [
        e for e in row.spec.endpoints if e.addresses and not (e.target_ref is not None and e.target_ref.kind == "Pod")
    ]
    services = _served_by_slice(db, ref, row) if others else None
    for e in others if services is not None else ():
        at = AddressKey("EndpointSlice", *key, e.addresses[0])
        if at not in workloads and all(map(is_ip, e.addresses)):
            workloads[at] = _unknown(db, at, row, e, services or ())
    return workloads


def _served_by_slice(db: Mesh, ref: ServiceRef, row: Object[EndpointSlice]) -> tuple[ServedService, ...] | None:
    """Return the service of an EndpointSlice, limited to the slice's ports, or None if ztunnels do not receive the
    service."""
    address = service_address(db, ref)
    if address is None:
        return None
    numbers = {port.name: port.number for port in reversed(address.ports)}
    ports = ((numbers[p.name], p.port) for p in row.spec.ports if p.port and p.protocol == "TCP" and p.name in numbers)
    return (ServedService(f"{ref.namespace}/{ref.hostname}", tuple(ports)),)


def _unknown(
    db: Mesh, at: AddressKey, row: Object[EndpointSlice], e: SliceEndpoint, services: tuple[ServedService, ...]
) -> WorkloadAddress:
    return WorkloadAddress(
        uid=at.uid,
        name=row.name,
        namespace=row.namespace,
        addresses=e.addresses,
        network=cluster_network(db, at.cluster),
        cluster=at.cluster,
        trust_domain=workload_trust_domain(db),
        services=services,
        healthy=e.conditions.ready is not False,
        host_network=True,
        is_compute=False,
    )
