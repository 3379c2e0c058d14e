"""The endpoints of a service's port: of EndpointSlices, of the WorkloadEntries that it selects, of ServiceEntries."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import ServiceEntry, ServicePort
from pilot.config.object import Object, RegistryKey
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
from pilot.mesh.registry.services import claimed_hosts, service
from pilot.mesh.registry.workload_entries import make_workload, selectable_entries
from pilot.mesh.tables.database import Mesh

_DNS = (Resolution.DNS_LB, Resolution.DNS_ROUND_ROBIN_LB)


@derived
def endpoints(db: Mesh, ref: ServiceRef, port_number: int) -> tuple[Endpoint, ...]:
    """Returns the endpoints of a service's port, of a pool those of all ports, whatever their health; () where there is no such port."""
    found = service(db, ref)
    ports = [p for p in found.ports if p.number == port_number] if found is not None else []
    if found is None or not ports:
        return ()
    port = next((p for p in ports if p.protocol is not Protocol.UDP), ports[0])
    if found.registry is not Registry.KUBERNETES:
        return _declared_endpoints(db, found, port)
    if found.is_pool:
        return tuple(endpoint for one in found.ports for endpoint in slice_endpoints(db, found, one))
    declared = _declared_endpoints(db, found, port) if ref.hostname in claimed_hosts(db, ref.namespace) else ()
    return (*declared, *slice_endpoints(db, found, port), *_selected_entries(db, found, port))


@derived
def service_accounts(db: Mesh, ref: ServiceRef) -> tuple[str, ...]:
    """Returns the identities that run a service, by its endpoints and its own word, also as other names of the trust domain; sorted."""
    found = service(db, ref)
    if found is None:
        return ()
    accounts = {e.service_account for p in found.ports for e in endpoints(db, ref, p.number) if e.service_account}
    if found.registry is Registry.KUBERNETES:
        accounts.update(unmatched_accounts(db, found))
    return tuple(
        sorted(spiffe.in_trust_domains({*accounts, *found.service_accounts}, service_rules(db).trust_domain_aliases))
    )


# -- WorkloadEntries of a Kubernetes Service ---------------------------------------------------------------------------------


def _selected_entries(db: Mesh, found: Service, port: Port) -> Iterable[Endpoint]:
    """Yields the WorkloadEntries that a Service with addresses of its own selects in its own clusters; a named target port must be one of the
    entry's."""
    if (
        not db.settings.registry.services_select_entries
        or found.resolution is not Resolution.CLIENT_SIDE_LB
        or not found.selector
    ):
        return
    selector = frozenset(found.selector)
    clusters = {cluster for cluster, _ in found.cluster_addresses}
    for workload in selectable_entries(db, found.namespace).values():
        if (
            workload.cluster_id in clusters
            and workload.serves(selector)
            and not workload.needs_dns
            and (number := target_port(workload, port))
        ):
            yield workload.endpoint(number, port.name)


def target_port(workload: Workload, port: Port) -> int:
    """Returns the port of a workload that a Service's port leads to; 0 where it has none of that name."""
    if isinstance(port.target, str):
        return workload.named_port(port.target)
    return workload.named_port(port.name) or port.target


# -- endpoints of ServiceEntries ---------------------------------------------------------------------------------------------


def _declared_endpoints(db: Mesh, found: Service, port: Port) -> tuple[Endpoint, ...]:
    """Returns the endpoints of every ServiceEntry that claims the service's name, oldest first. EDS joins ports by name, DNS clusters by number.

    As in Istio, each is there once for every address of its entry; Envoy takes them for one.
    """
    by_number = found.resolution in _DNS
    out: list[Endpoint] = []
    rows = (SERVICE_ENTRY.get(db, key) for key in SERVICE_ENTRY.keys(db, "ref", found.ref))
    for row in sorted((r for r in rows if r is not None), key=lambda r: (r.created, r.name)):
        for p in row.spec.ports:
            if p.number == port.number if by_number else p.name == port.name:
                out += list(entry_endpoints(db, row, p, found.hostname)) * max(
                    1, sum(bool(parse_address(a)) for a in row.spec.addresses)
                )
    return tuple(out[:1] if found.resolution is Resolution.DNS_ROUND_ROBIN_LB else out)


def entry_endpoints(db: Mesh, row: Object[ServiceEntry], port: ServicePort, hostname: str) -> Iterable[Endpoint]:
    """Yields the endpoints of one of an entry's ports. An entry that DNS resolves is its own endpoint where it has no others."""
    spec = row.spec
    is_dns = spec.resolution in ("DNS", "DNS_ROUND_ROBIN")
    if is_dns and not spec.endpoints and spec.workload_selector is None:
        target = port.target_port or port.number
        cluster = db.settings.registry.cluster_id
        itself = Workload(
            name=row.name, namespace=row.namespace, addresses=(hostname,), workload=row.name, cluster_id=cluster
        )
        yield itself.endpoint(target, port.name)
        return
    for workload in entry_workloads(db, row):
        yield entry_endpoint(workload, port)


def entry_workloads(db: Mesh, row: Object[ServiceEntry]) -> Iterable[Workload]:
    """Yields the workloads of an entry: those written into it, or those of its namespace in any cluster that it selects, Pods before
    WorkloadEntries."""
    spec = row.spec
    if spec.workload_selector is None:
        for i, e in enumerate(spec.endpoints):
            key = RegistryKey(db.settings.registry.cluster_id, row.namespace, f"{row.name}-{i}")
            yield make_workload(db, key, e, e.labels, key.name)
        return
    is_dns = spec.resolution in ("DNS", "DNS_ROUND_ROBIN")
    selected = selectable_pods(db, row.namespace).values() if db.settings.registry.entries_select_pods else ()
    for workload in (*selected, *selectable_entries(db, row.namespace).values()):
        if workload.serves(spec.workload_selector.labels) and (is_dns or not workload.needs_dns):
            yield workload


def entry_endpoint(workload: Workload, port: ServicePort) -> Endpoint:
    """Returns a workload as an endpoint of an entry's port: at its own port of that name, else at the target port, else at the same port."""
    health = EndpointHealth.HEALTHY if workload.is_pod else EndpointHealth.UNKNOWN
    if workload.addresses[0].startswith(UNIX):
        return workload.at_socket(port.name, health)
    return workload.endpoint(workload.named_port(port.name) or port.target_port or port.number, port.name, health)
