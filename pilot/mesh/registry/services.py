"""The services of the mesh, from Kubernetes Services and ServiceEntries, and who sees them.

A service is named by host name and namespace. Kubernetes Services of one name in several clusters are one service. Where a
Kubernetes Service and ServiceEntries claim the same name, the Kubernetes Service has it; of several entries the oldest has it, and
others like it add their ports and addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE, SERVICE_IMPORT
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.registry import clusterset
from pilot.mesh.registry.auto_addresses import auto_addresses
from pilot.mesh.registry.clusterset import has_hosts
from pilot.mesh.registry.kubernetes_services import build_kubernetes_service, kubernetes_hostname, merge_clusters
from pilot.mesh.registry.service_entries import build_entry_service
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.clusters import service_clusters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.namespaces import namespace_annotations, namespace_labels


class ServiceSummary(NamedTuple):
    """A service as lists of services know it. `age` (created, name, namespace) sorts the oldest first."""

    age: tuple[str, str, str]
    exported_to: frozenset[str]
    placed: str = (
        ""  # PreferSameZone, PreferSameNode, node-local: what makes its endpoints depend on where a client runs
    )

    def seen_from(self, namespace: str) -> bool:
        return "*" in self.exported_to or namespace in self.exported_to


# -- one service -----------------------------------------------------------------------------------------------------------


@derived
def service(db: Mesh, ref: ServiceRef) -> Service | None:
    """Returns the service of that name, None where nothing declares it."""
    if has_hosts(db) and (key := kubernetes_key(ref, clusterset.DOMAIN)) is not None:
        imported = (_imported(db, RegistryKey(cluster, *key)) for cluster in service_clusters(db))
        if found := [s for s in imported if s is not None]:
            return merge_clusters(found)
    key = kubernetes_key(ref, db.settings.registry.domain)
    if key is not None:
        declared = (_declared(db, RegistryKey(cluster, *key)) for cluster in service_clusters(db))
        if found := [s for s in declared if s is not None]:
            return merge_clusters(found)
    return merge_services(entry_services(db, ref))


def cluster_service(db: Mesh, key: RegistryKey) -> Service | None:
    """Returns the service as one cluster declares it, by a Service that is there. No node of its own: where no other cluster has Services, it is
    the one of that name, which is built already."""
    if service_clusters(db) != (key.cluster,):
        return _declared(db, key)
    return service(
        db, ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)
    )


def _declared(db: Mesh, key: RegistryKey) -> Service | None:
    row = SERVICE.get(db, key)
    return (
        build_kubernetes_service(
            row, key.cluster, namespace_annotations(db, key.cluster, key.namespace), service_rules(db)
        )
        if row
        else None
    )


def _imported(db: Mesh, key: RegistryKey) -> Service | None:
    """Returns the service that a cluster imports under the name that all clusters share; None where it does not, or has no such Service itself."""
    row, declared = SERVICE_IMPORT.get(db, key), _declared(db, key)
    if row is None or declared is None or not row.spec.ips:
        return None
    hostname = kubernetes_hostname(key.name, key.namespace, clusterset.DOMAIN)
    return msgspec.structs.replace(
        declared, hostname=hostname, addresses=row.spec.ips, cluster_addresses=((key.cluster, row.spec.ips),)
    )


@derived
def entry_services(db: Mesh, ref: ServiceRef) -> tuple[Service, ...]:
    """Returns what each ServiceEntry that claims the name declares for it, by age."""
    found = []
    for key in SERVICE_ENTRY.keys(db, "ref", ref):
        row = SERVICE_ENTRY.get(db, key)
        if row is not None:
            annotations = namespace_annotations(db, db.settings.registry.cluster_id, ref.namespace)
            labels = namespace_labels(db, db.settings.registry.cluster_id, ref.namespace)
            addresses = auto_addresses(db, key, ref.hostname)
            found.append(build_entry_service(row, ref.hostname, addresses, labels, annotations, service_rules(db)))
    return tuple(sorted(found, key=lambda s: (s.created, s.source.name)))


@derived
def service_summary(db: Mesh, ref: ServiceRef) -> ServiceSummary | None:
    """Returns what lists of services are made by; None where the service is not there."""
    found = service(db, ref)
    if found is None:
        return None
    placed = "node-local" if found.node_local else found.traffic_distribution
    return ServiceSummary((found.created, found.name, found.namespace), found.export_to, placed)


def is_visible(db: Mesh, ref: ServiceRef, namespace: str) -> bool:
    """Returns whether a namespace sees the service. It is asked once a namespace and service, so it is no node of its own."""
    listed = service_summary(db, ref)
    return listed is not None and listed.seen_from(namespace)


def kubernetes_key(ref: ServiceRef, domain: str) -> ObjectKey | None:
    """Returns the key, but for the cluster, of the Kubernetes Services that would have this name."""
    name = ref.hostname.partition(".")[0]
    return ObjectKey(ref.namespace, name) if ref.hostname == kubernetes_hostname(name, ref.namespace, domain) else None


def merge_services(declared: tuple[Service, ...]) -> Service | None:
    """Returns the first, with the ports and addresses that others of the same nature add; None if there are no services."""
    if len(declared) < 2:
        return declared[0] if declared else None
    first = declared[0]
    alike = [s for s in declared if _nature(s) == _nature(first)]
    ports: dict[int, Port] = {}
    for port in (p for s in alike for p in s.ports):
        ports.setdefault(port.number, port)
    addresses = dict.fromkeys(a for s in alike for a in s.addresses)
    return msgspec.structs.replace(first, ports=tuple(ports.values()), addresses=tuple(addresses))


@derived
def unmerged_entries(db: Mesh, ref: ServiceRef) -> tuple[ObjectKey, ...]:
    """Returns the ServiceEntries that claim a name and add nothing to its service, because they differ in nature from the oldest."""
    first, *others = entry_services(db, ref) or (None,)
    return tuple(s.source for s in others if s is not None and first is not None and _nature(s) != _nature(first))


def _nature(s: Service) -> tuple[object, ...]:
    return s.resolution, s.labels, s.selector, s.export_to


# -- lists of services -----------------------------------------------------------------------------------------------------


@hub
def claimed_hosts(db: Mesh, namespace: str) -> frozenset[str]:
    """Returns the host names that ServiceEntries of a namespace claim."""
    rows = (SERVICE_ENTRY.get(db, key) for key in SERVICE_ENTRY.keys(db, "namespace", namespace))
    return frozenset(h for row in rows if row is not None for h in row.spec.hosts)


@derived
def _entries(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def _entry_refs(db: Mesh, key: ObjectKey) -> tuple[ServiceRef, ...] | None:
    row = SERVICE_ENTRY.get(db, key)
    return tuple(ServiceRef(h, key.namespace) for h in row.spec.hosts) if row is not None else None


_refs_by_entry: Gather[ObjectKey, [], tuple[ServiceRef, ...]] = Gather("entry_refs", _entries, _entry_refs, hub=True)


@derived
def _all_refs(db: Mesh) -> tuple[ServiceRef, ...]:
    domain = db.settings.registry.domain
    refs = dict.fromkeys(
        ServiceRef(kubernetes_hostname(k.name, k.namespace, domain), k.namespace) for k in SERVICE.all_keys(db)
    )
    for key in SERVICE_IMPORT.all_keys(db) if has_hosts(db) else ():
        refs[ServiceRef(kubernetes_hostname(key.name, key.namespace, clusterset.DOMAIN), key.namespace)] = None
    for declared in _refs_by_entry(db).values():
        refs.update(dict.fromkeys(declared))
    return tuple(refs)


_summaries: Gather[ServiceRef, [], ServiceSummary] = Gather("service_summaries", _all_refs, service_summary, hub=True)


@hub
def service_refs(db: Mesh) -> tuple[ServiceRef, ...]:
    """Returns every service, oldest first."""
    listed = _summaries(db)
    return tuple(sorted(listed, key=lambda ref: listed[ref].age))


@hub
def placed_services(db: Mesh) -> frozenset[str]:
    """Returns the ways in which endpoints of services depend on where a client runs, of all services."""
    return frozenset(item.placed for item in _summaries(db).values()) - {""}


@hub
def _refs_by_audience(db: Mesh) -> Mapping[str, tuple[ServiceRef, ...]]:
    """Returns the services that a namespace sees because they name it, and under "*" the public ones; each oldest first."""
    listed = _summaries(db)
    out: dict[str, list[ServiceRef]] = defaultdict(list)
    for ref in service_refs(db):
        for namespace in listed[ref].exported_to:
            out[namespace].append(ref)
    return {namespace: tuple(refs) for namespace, refs in out.items()}


@hub
def public_refs(db: Mesh) -> tuple[ServiceRef, ...]:
    """Returns the services that every namespace sees, oldest first."""
    return _refs_by_audience(db).get("*", ())


@derived
def _private_refs(db: Mesh, namespace: str) -> tuple[ServiceRef, ...]:
    return _refs_by_audience(db).get(namespace, ())


@hub
def visible_refs(db: Mesh, namespace: str) -> tuple[ServiceRef, ...]:
    """Returns the services that a namespace sees: first those exported to it by name, then the public ones; each oldest first."""
    private = _private_refs(db, namespace)
    return private + public_refs(db) if private else public_refs(db)


@hub
def refs_in_namespace(db: Mesh, namespace: str) -> tuple[ServiceRef, ...]:
    """Returns the services that a namespace declares, oldest first. It reads nothing of other namespaces."""
    domain = db.settings.registry.domain
    refs = {
        ServiceRef(kubernetes_hostname(k.name, namespace, domain), namespace)
        for k in SERVICE.keys(db, "namespace", namespace)
    }
    if has_hosts(db):
        imported = SERVICE_IMPORT.keys(db, "namespace", namespace)
        refs |= {ServiceRef(kubernetes_hostname(k.name, namespace, clusterset.DOMAIN), namespace) for k in imported}
    for key in SERVICE_ENTRY.keys(db, "namespace", namespace):
        row = SERVICE_ENTRY.get(db, key)
        refs.update(ServiceRef(h, namespace) for h in (row.spec.hosts if row is not None else ()))
    return _oldest_first(db, refs)


@derived
def refs_by_hostname(db: Mesh, hostname: str) -> tuple[ServiceRef, ...]:
    """Returns the services of a host name, at most one a namespace, oldest first."""
    refs = {ServiceRef(hostname, key.namespace) for key in SERVICE_ENTRY.keys(db, "host", hostname)}
    name, _, rest = hostname.partition(".")
    namespace = rest.partition(".")[0]
    domains = (db.settings.registry.domain, clusterset.DOMAIN) if has_hosts(db) else (db.settings.registry.domain,)
    if any(hostname == kubernetes_hostname(name, namespace, domain) for domain in domains):
        refs.add(ServiceRef(hostname, namespace))
    return _oldest_first(db, refs)


def _oldest_first(db: Mesh, refs: Iterable[ServiceRef]) -> tuple[ServiceRef, ...]:
    listed = [(found.age, ref) for ref in refs if (found := service_summary(db, ref)) is not None]
    return tuple(ref for _, ref in sorted(listed))
