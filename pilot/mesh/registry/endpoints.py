"""Endpoints of service ports. They are declared by EndpointSlices, by ServiceEntries, and by the WorkloadEntries that a
ServiceEntry selects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import ServiceEntry, ServicePort, copies
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.lib import spiffe
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.service import Port, Registry, Resolution, Service, ServiceRef
from pilot.mesh.model.workload import UNIX, Workload
from pilot.mesh.registry.endpoint_slices import slice_endpoints, unmatched_accounts
from pilot.mesh.registry.pods import selectable_pods
from pilot.mesh.registry.service_entries import parse_address
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.registry.services import claimed_hosts, declaring_entries, service
from pilot.mesh.registry.workload_entries import make_workload, selectable_entries
from pilot.mesh.tables.database import Mesh

_DNS = (Resolution.DNS_LB, Resolution.DNS_ROUND_ROBIN_LB)


@derived
def endpoints(db: Mesh, ref: ServiceRef, port_number: int) -> tuple[Endpoint, ...]:
    """Return the endpoints of a port of a service, whether healthy or not, or () if there is no such port.

    For an InferencePool, they are the endpoints of all its ports.
    """
    row = service(db, ref)
    port = _port(row, port_number) if row is not None else None
    if row is None or port is None:
        return ()
    if row.registry is not Registry.KUBERNETES:
        return _declared_endpoints(db, row, port)
    if row.is_pool:
        return tuple(endpoint for pool_port in row.ports for endpoint in slice_endpoints(db, row, pool_port))
    entry_declared = _declared_endpoints(db, row, port) if ref.hostname in claimed_hosts(db, ref.namespace) else ()
    return (*entry_declared, *slice_endpoints(db, row, port), *_selected_entries(db, row, port))


def _port(service: Service, number: int) -> Port | None:
    """Return the port with a number. If UDP has the same number, return the other one."""
    ports = [port for port in service.ports if port.number == number]
    return next((port for port in ports if port.protocol is not Protocol.UDP), ports[0] if ports else None)


@derived
def service_accounts(db: Mesh, ref: ServiceRef) -> tuple[str, ...]:
    """Return the identities that the workloads of a service may have, sorted.

    They are the identities of its endpoints, and the identities that the service declares. Each is repeated for every
    alias of the trust domain.
    """
    row = service(db, ref)
    if row is None:
        return ()
    accounts: set[str] = set()
    shared_keys = _shared_keys(db, row)
    for port in row.ports:
        shared = shared_keys.get(port.number)
        members = shared_endpoints(db, shared) if shared is not None else endpoints(db, ref, port.number)
        accounts.update(endpoint.service_account for endpoint in members)
    accounts.discard("")
    if row.registry is Registry.KUBERNETES:
        accounts.update(unmatched_accounts(db, row))
    return tuple(
        sorted(spiffe.in_trust_domains({*accounts, *row.service_accounts}, service_rules(db).trust_domain_aliases))
    )


# -- WorkloadEntries of a Kubernetes Service ---------------------------------------------------------------------------


def _selected_entries(db: Mesh, service: Service, port: Port) -> Iterable[Endpoint]:
    """Yield the endpoints at WorkloadEntries that a Service with virtual IPs selects in its own clusters.

    If the target port is a name, the WorkloadEntry must have a port with that name.
    """
    if (
        not db.settings.registry.services_select_entries
        or service.resolution is not Resolution.CLIENT_SIDE_LB
        or not service.selector
    ):
        return
    selector = frozenset(service.selector)
    clusters = {cluster for cluster, _ in service.cluster_addresses}
    for workload in selectable_entries(db, service.namespace).values():
        if (
            workload.cluster_id in clusters
            and workload.serves(selector)
            and not workload.needs_dns
            and (number := target_port(workload, port))
        ):
            yield workload.endpoint(number, port.name)


def target_port(workload: Workload, port: Port) -> int:
    """Return the workload's port for a service port. Return 0 if it has no port with the name of the target port."""
    if isinstance(port.target, str):
        return workload.named_port(port.target)
    return workload.named_port(port.name) or port.target


# -- endpoints of ServiceEntries ---------------------------------------------------------------------------------------


def _declared_endpoints(db: Mesh, service: Service, port: Port) -> tuple[Endpoint, ...]:
    """Return the endpoints from every ServiceEntry that declares the service. Endpoints from the oldest ServiceEntry
    are first."""
    by_entry = [
        shared_endpoints(db, SharedEndpointsKey(row.key, entry_port.name))
        if _shares_endpoints(row.spec)
        else _repeated(row.spec, entry_endpoints(db, row, entry_port, service.hostname))
        for row, entry_port in _declarations(db, service)[_declared_name(service, port)]
    ]
    every = by_entry[0] if len(by_entry) == 1 else tuple(chain.from_iterable(by_entry))
    return every[:1] if service.resolution is Resolution.DNS_ROUND_ROBIN_LB else every


Declarations = defaultdict[int | str, list[tuple[Object[ServiceEntry], ServicePort]]]


def _declarations(db: Mesh, service: Service) -> Declarations:
    """Return the ServiceEntries that declare each port of a service, the oldest first."""
    declarations: Declarations = defaultdict(list)
    for row in sorted(declaring_entries(db, service.ref), key=lambda row: (row.created, row.name)):
        for port in row.spec.ports:
            declarations[_declared_name(service, port)].append((row, port))
    return declarations


def _declared_name(service: Service, port: Port | ServicePort) -> int | str:
    """Return the property that identifies a port in ServiceEntries: its number for DNS, and its name for EDS."""
    return port.number if service.resolution in _DNS else port.name


def _repeated(entry: ServiceEntry, own: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints of a ServiceEntry. As in Istio, each is repeated for every different address of the
    ServiceEntry, unless this results in too many. Envoy merges them."""
    every = tuple(own)
    addresses = {parse_address(address) for address in entry.addresses} - {""}
    return every * copies(len(every), len(addresses))


def _shares_endpoints(entry: ServiceEntry) -> bool:
    """Return whether several hosts have the same endpoints, because none of them is an endpoint itself."""
    return len(entry.hosts) > 1 and (bool(entry.endpoints) or entry.resolution not in ("DNS", "DNS_ROUND_ROBIN"))


class SharedEndpointsKey(NamedTuple):
    """The key of the endpoints of a port, by its name, that all hosts of a ServiceEntry share."""

    entry: ObjectKey
    port: str


@derived
def shared_endpoints(db: Mesh, key: SharedEndpointsKey) -> tuple[Endpoint, ...]:
    """Return the endpoints of a port that all hosts of a ServiceEntry share."""
    row = SERVICE_ENTRY.get(db, key.entry)
    port = next((port for port in row.spec.ports if port.name == key.port), None) if row is not None else None
    if row is None or port is None:
        return ()
    every = _repeated(row.spec, entry_endpoints(db, row, port, ""))
    return every[:1] if row.spec.resolution == "DNS_ROUND_ROBIN" else every


def find_shared_endpoints(db: Mesh, ref: ServiceRef, port_number: int) -> SharedEndpointsKey | None:
    """Return the key of the endpoints of a port of a service, if other hosts of a ServiceEntry share them. Not
    memoised."""
    row = service(db, ref)
    return _shared_keys(db, row).get(port_number) if row is not None else None


def _shared_keys(db: Mesh, service: Service) -> Mapping[int, SharedEndpointsKey]:
    """Return the keys of the endpoints that a service shares with other hosts of a ServiceEntry, by port number."""
    if service.registry is Registry.KUBERNETES:
        return {}
    shares = any(_shares_endpoints(entry.spec) for entry in declaring_entries(db, service.ref))
    return _shared_by_port(db, service.ref) if shares else {}


@derived
def _shared_by_port(db: Mesh, ref: ServiceRef) -> Mapping[int, SharedEndpointsKey]:
    row = service(db, ref)
    if row is None:
        return {}
    declarations = _declarations(db, row)
    keys: dict[int, SharedEndpointsKey] = {}
    by_precedence = sorted(row.ports, key=lambda port: port.protocol is Protocol.UDP)  # as in `_port`
    for number, port in {port.number: port for port in reversed(by_precedence)}.items():
        if len(declared := declarations[_declared_name(row, port)]) == 1 and _shares_endpoints(declared[0][0].spec):
            keys[number] = SharedEndpointsKey(declared[0][0].key, declared[0][1].name)
    return keys


def entry_endpoints(db: Mesh, row: Object[ServiceEntry], port: ServicePort, hostname: str) -> Iterable[Endpoint]:
    """Yield the endpoints of a ServiceEntry's port. If there are none and DNS resolves the ServiceEntry, the hostname
    is the endpoint."""
    spec = row.spec
    is_dns = spec.resolution in ("DNS", "DNS_ROUND_ROBIN")
    if is_dns and not spec.endpoints and spec.workload_selector is None:
        target = port.target_port or port.number
        cluster = db.settings.registry.cluster_id
        workload = Workload(
            name=row.name, namespace=row.namespace, addresses=(hostname,), workload=row.name, cluster_id=cluster
        )
        yield workload.endpoint(target, port.name)
        return
    for workload in entry_workloads(db, row):
        yield entry_endpoint(workload, port)


def entry_workloads(db: Mesh, row: Object[ServiceEntry]) -> Iterable[Workload]:
    """Yield the workloads of a ServiceEntry: its inline endpoints, or the workloads in its namespace that it selects,
    Pods first."""
    spec = row.spec
    if spec.workload_selector is None:
        for position, entry in enumerate(spec.endpoints):
            key = RegistryKey(db.settings.registry.cluster_id, row.namespace, f"{row.name}-{position}")
            yield make_workload(db, key, entry, entry.labels, key.name)
        return
    is_dns = spec.resolution in ("DNS", "DNS_ROUND_ROBIN")
    pods = selectable_pods(db, row.namespace).values() if db.settings.registry.entries_select_pods else ()
    for workload in (*pods, *selectable_entries(db, row.namespace).values()):
        if workload.serves(spec.workload_selector.labels) and (is_dns or not workload.needs_dns):
            yield workload


def entry_endpoint(workload: Workload, port: ServicePort) -> Endpoint:
    """Return the endpoint of a ServiceEntry's port at a workload.

    The endpoint's port is the workload's port with the same name or, if there is none, the target port.
    """
    health = EndpointHealth.HEALTHY if workload.is_pod else EndpointHealth.UNKNOWN
    if workload.addresses[0].startswith(UNIX):
        return workload.at_socket(port.name, health)
    return workload.endpoint(workload.named_port(port.name) or port.target_port or port.number, port.name, health)
