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
from pilot.derive import Steps, derived, derived_in_steps
from pilot.lib import spiffe
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.service import Port, Registry, Resolution, Service, ServiceRef
from pilot.mesh.model.workload import UNIX, Workload
from pilot.mesh.registry.endpoint_slices import slice_endpoints, unmatched_accounts
from pilot.mesh.registry.pods import selectable_pods
from pilot.mesh.registry.selected_workloads import excess_selectors
from pilot.mesh.registry.service_entries import parse_address
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.registry.services import claimed_hosts, declaring_entries, service
from pilot.mesh.registry.workload_entries import make_workload, selectable_entries
from pilot.mesh.tables.database import Mesh

STEP = 500
"""Number of endpoints that are computed in a step, which takes about 2 ms."""
_DNS = (Resolution.DNS_LB, Resolution.DNS_ROUND_ROBIN_LB)


@derived_in_steps
def endpoints(db: Mesh, ref: ServiceRef, port_number: int) -> Steps[tuple[Endpoint, ...]]:
    """Return the endpoints of a port of a service, whether healthy or not, or () if there is no such port.

    For an InferencePool, they are the endpoints of all its ports.
    """
    row = service(db, ref)
    port = _port(row, port_number) if row is not None else None
    if row is None or port is None:
        return ()
    if row.registry is not Registry.KUBERNETES:
        return (yield from _declared_endpoints(db, row, port))
    listed: list[Endpoint] = []
    if row.is_pool:
        for pool_port in row.ports:
            listed += yield from slice_endpoints(db, row, pool_port)
        return tuple(listed)
    if ref.hostname in claimed_hosts(db, ref.namespace):
        listed += yield from _declared_endpoints(db, row, port)
    listed += yield from slice_endpoints(db, row, port)
    listed += yield from _selected_entries(db, row, port)
    return tuple(listed)


def _port(service: Service, number: int) -> Port | None:
    """Return the port with a number. If UDP has the same number, return the other one."""
    ports = [port for port in service.ports if port.number == number]
    return next((port for port in ports if port.protocol is not Protocol.UDP), ports[0] if ports else None)


@derived_in_steps
def service_accounts(db: Mesh, ref: ServiceRef) -> Steps[tuple[str, ...]]:
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
        yield shared_endpoints.step(shared) if shared is not None else endpoints.step(ref, port.number)
        members = shared_endpoints(db, shared) if shared is not None else endpoints(db, ref, port.number)
        for start in range(0, len(members), STEP):
            yield None
            accounts.update(endpoint.service_account for endpoint in members[start : start + STEP])
    if row.registry is Registry.KUBERNETES:
        accounts |= yield from unmatched_accounts(db, row)
    accounts.discard("")
    return tuple(
        sorted(spiffe.in_trust_domains({*accounts, *row.service_accounts}, service_rules(db).trust_domain_aliases))
    )


# -- WorkloadEntries of a Kubernetes Service ---------------------------------------------------------------------------


def _selected_entries(db: Mesh, service: Service, port: Port) -> Steps[list[Endpoint]]:
    """Return the endpoints at WorkloadEntries that a Service with virtual IPs selects in its own clusters.

    If the target port is a name, the WorkloadEntry must have a port with that name.
    """
    selected: list[Endpoint] = []
    if (
        not db.settings.registry.services_select_entries
        or service.resolution is not Resolution.CLIENT_SIDE_LB
        or not service.selector
    ):
        return selected
    workloads = selectable_entries(db, service.namespace)
    if not workloads or service.source in excess_selectors(db, service.namespace):
        return selected
    selector = frozenset(service.selector)
    clusters = {cluster for cluster, _ in service.cluster_addresses}
    for number, workload in enumerate(workloads.values(), 1):
        if number % STEP == 0:
            yield None
        if (
            workload.cluster_id in clusters
            and workload.serves(selector)
            and not workload.needs_dns
            and (target := target_port(workload, port))
        ):
            selected.append(workload.endpoint(target, port.name))
    return selected


def target_port(workload: Workload, port: Port) -> int:
    """Return the workload's port for a service port. Return 0 if it has no port with the name of the target port."""
    if isinstance(port.target, str):
        return workload.named_port(port.target)
    return workload.named_port(port.name) or port.target


# -- endpoints of ServiceEntries ---------------------------------------------------------------------------------------


def _declared_endpoints(db: Mesh, service: Service, port: Port) -> Steps[tuple[Endpoint, ...]]:
    """Return the endpoints from every ServiceEntry that declares the service. Endpoints from the oldest ServiceEntry
    are first."""
    by_entry: list[tuple[Endpoint, ...]] = []
    for row, entry_port in _declarations(db, service)[_declared_name(service, port)]:
        if _shares_endpoints(row.spec):
            shared = SharedEndpointsKey(row.key, entry_port.name)
            yield shared_endpoints.step(shared)
            by_entry.append(shared_endpoints(db, shared))
        else:
            own = yield from _entry_endpoints(db, row, entry_port, service.hostname)
            by_entry.append(_repeated(row.spec, own))
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


def _repeated(entry: ServiceEntry, own: list[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints of a ServiceEntry. As in Istio, each is repeated for every different address of the
    ServiceEntry, unless this results in too many. Envoy merges them."""
    addresses = {parse_address(address) for address in entry.addresses} - {""}
    return tuple(own) * copies(len(own), len(addresses))


def _shares_endpoints(entry: ServiceEntry) -> bool:
    """Return whether several hosts have the same endpoints, because none of them is an endpoint itself."""
    return len(entry.hosts) > 1 and (bool(entry.endpoints) or entry.resolution not in ("DNS", "DNS_ROUND_ROBIN"))


class SharedEndpointsKey(NamedTuple):
    """The key of the endpoints of a port, by its name, that all hosts of a ServiceEntry share."""

    entry: ObjectKey
    port: str


@derived_in_steps
def shared_endpoints(db: Mesh, key: SharedEndpointsKey) -> Steps[tuple[Endpoint, ...]]:
    """Return the endpoints of a port that all hosts of a ServiceEntry share."""
    row = SERVICE_ENTRY.get(db, key.entry)
    port = next((port for port in row.spec.ports if port.name == key.port), None) if row is not None else None
    if row is None or port is None:
        return ()
    every = _repeated(row.spec, (yield from _entry_endpoints(db, row, port, "")))
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


def _entry_endpoints(db: Mesh, row: Object[ServiceEntry], port: ServicePort, hostname: str) -> Steps[list[Endpoint]]:
    """Return the endpoints of a ServiceEntry's port. If there are none and DNS resolves the ServiceEntry, the hostname
    is the endpoint."""
    spec = row.spec
    is_dns = spec.resolution in ("DNS", "DNS_ROUND_ROBIN")
    if is_dns and not spec.endpoints and spec.workload_selector is None:
        target = port.target_port or port.number
        cluster = db.settings.registry.cluster_id
        workload = Workload(
            name=row.name, namespace=row.namespace, addresses=(hostname,), workload=row.name, cluster_id=cluster
        )
        return [workload.endpoint(target, port.name)]
    endpoints_of_port: list[Endpoint] = []
    for number, workload in enumerate(entry_workloads(db, row), 1):
        if number % STEP == 0:
            yield None
        endpoints_of_port.append(entry_endpoint(workload, port))
    return endpoints_of_port


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
