"""Services of the mesh and their visibility. Kubernetes Services and ServiceEntries declare them.

A service is identified by its hostname and namespace. Kubernetes Services with the same name in several clusters are
one service. A Kubernetes Service takes precedence over ServiceEntries that claim its hostname. Otherwise, the oldest
ServiceEntry takes precedence, and ServiceEntries with equal settings add their ports and addresses to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE_IMPORT
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import Gather, Steps, derived, hub, hub_in_steps
from pilot.mesh.model.service import Port, Service, ServiceRef
from pilot.mesh.registry import clusterset
from pilot.mesh.registry.auto_addresses import auto_addresses
from pilot.mesh.registry.clusterset import has_hosts
from pilot.mesh.registry.excess_entries import excess_entries, is_ignored
from pilot.mesh.registry.excess_services import used_keys, used_keys_in, used_ports, used_service
from pilot.mesh.registry.kubernetes_services import build_kubernetes_service, kubernetes_hostname, merge_clusters
from pilot.mesh.registry.service_entries import build_entry_service
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.clusters import service_clusters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.namespaces import namespace_annotations, namespace_labels

STEP = 1000
"""Number of services that are listed in a step."""


class ServiceSummary(NamedTuple):
    """The properties of a service that lists of services depend on. `age` (created, name, namespace) is a sort key."""

    age: tuple[str, str, str]
    exported_to: frozenset[str]
    distribution: str = (
        ""  # PreferSameZone, PreferSameNode or node-local, which make endpoints depend on the client's location
    )

    def is_visible_from(self, namespace: str) -> bool:
        return "*" in self.exported_to or namespace in self.exported_to


# -- one service -------------------------------------------------------------------------------------------------------


@derived
def service(db: Mesh, ref: ServiceRef) -> Service | None:
    """Return the service with a hostname and namespace, merged across clusters, or None if nothing declares it."""
    if has_hosts(db) and (key := kubernetes_key(ref, clusterset.DOMAIN)) is not None:
        per_cluster_imports = (_imported(db, RegistryKey(cluster, *key)) for cluster in service_clusters(db))
        if services := [service for service in per_cluster_imports if service is not None]:
            return merge_clusters(services)
    key = kubernetes_key(ref, db.settings.registry.domain)
    if key is not None:
        per_cluster = (_kubernetes_service(db, RegistryKey(cluster, *key)) for cluster in service_clusters(db))
        if services := [service for service in per_cluster if service is not None]:
            return merge_clusters(services)
    return merge_services(entry_services(db, ref))


def cluster_service(db: Mesh, key: RegistryKey) -> Service | None:
    """Return the service that an existing Service in one cluster declares. Not memoised.

    If no other cluster has Services, this is the result of `service`, which has already been computed.
    """
    if service_clusters(db) != (key.cluster,):
        return _kubernetes_service(db, key)
    return service(
        db, ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)
    )


def _kubernetes_service(db: Mesh, key: RegistryKey) -> Service | None:
    row = used_service(db, key)
    return (
        build_kubernetes_service(
            row,
            used_ports(db, key, row),
            key.cluster,
            namespace_annotations(db, key.cluster, key.namespace),
            service_rules(db),
        )
        if row
        else None
    )


def _imported(db: Mesh, key: RegistryKey) -> Service | None:
    """Return the service that a cluster imports under a clusterset hostname.

    Return None if the cluster does not import it, or does not have the Service itself.
    """
    row, local_service = SERVICE_IMPORT.get(db, key), _kubernetes_service(db, key)
    if row is None or local_service is None or not row.spec.ips:
        return None
    hostname = kubernetes_hostname(key.name, key.namespace, clusterset.DOMAIN)
    return msgspec.structs.replace(
        local_service, hostname=hostname, addresses=row.spec.ips, cluster_addresses=((key.cluster, row.spec.ips),)
    )


@derived
def entry_services(db: Mesh, ref: ServiceRef) -> tuple[Service, ...]:
    """Return the services that ServiceEntries declare for a hostname and namespace, oldest first."""
    services = []
    for row in declaring_entries(db, ref):
        annotations = namespace_annotations(db, db.settings.registry.cluster_id, ref.namespace)
        labels = namespace_labels(db, db.settings.registry.cluster_id, ref.namespace)
        addresses = auto_addresses(db, row.key, ref.hostname)
        services.append(build_entry_service(row, ref.hostname, addresses, labels, annotations, service_rules(db)))
    return tuple(sorted(services, key=lambda service: (service.created, service.source.name)))


def declaring_entries(db: Mesh, ref: ServiceRef) -> Iterator[Object[ServiceEntry]]:
    """Yield the ServiceEntries that declare a service, except those that exceed the limit of the namespace. Not
    memoised."""
    for key in SERVICE_ENTRY.keys(db, "ref", ref):
        row = SERVICE_ENTRY.get(db, key)
        if row is not None and not is_ignored(db, key):
            yield row


@derived
def service_summary(db: Mesh, ref: ServiceRef) -> ServiceSummary | None:
    """Return the summary of a service, or None if it does not exist."""
    row = service(db, ref)
    if row is None:
        return None
    distribution = "node-local" if row.node_local else row.traffic_distribution
    return ServiceSummary((row.created, row.name, row.namespace), row.export_to, distribution)


def is_visible(db: Mesh, ref: ServiceRef, namespace: str) -> bool:
    """Return True if the service is visible in a namespace. Not memoised, because each pair is evaluated only once."""
    summary = service_summary(db, ref)
    return summary is not None and summary.is_visible_from(namespace)


def kubernetes_key(ref: ServiceRef, domain: str) -> ObjectKey | None:
    """Return the key, without the cluster, of the Kubernetes Services with this hostname. Return None if no Kubernetes
    Service can have it."""
    name = ref.hostname.partition(".")[0]
    return ObjectKey(ref.namespace, name) if ref.hostname == kubernetes_hostname(name, ref.namespace, domain) else None


def merge_services(services: tuple[Service, ...]) -> Service | None:
    """Return the first service, with the ports and addresses of all services that have the same settings.

    Clients accept the subject alternative names of all services, because they use the endpoints of all. Return None if
    there are no services.
    """
    if len(services) < 2:
        return services[0] if services else None
    first = services[0]
    matching = [service for service in services if _merge_identity(service) == _merge_identity(first)]
    ports: dict[int, Port] = {}
    for port in (port for service in matching for port in service.ports):
        ports.setdefault(port.number, port)
    addresses = dict.fromkeys(address for service in matching for address in service.addresses)
    accounts = dict.fromkeys(account for service in services for account in service.service_accounts)
    return msgspec.structs.replace(
        first, ports=tuple(ports.values()), addresses=tuple(addresses), service_accounts=tuple(accounts)
    )


@derived
def unmerged_entries(db: Mesh, ref: ServiceRef) -> tuple[ObjectKey, ...]:
    """Return the ServiceEntries that claim a service but are not merged into it, because their settings differ from
    those of the oldest ServiceEntry."""
    first, *others = entry_services(db, ref) or (None,)
    return tuple(
        other.source
        for other in others
        if other is not None and first is not None and _merge_identity(other) != _merge_identity(first)
    )


def _merge_identity(s: Service) -> tuple[object, ...]:
    return s.resolution, s.labels, s.selector, s.export_to


# -- lists of services -------------------------------------------------------------------------------------------------


@hub
def claimed_hosts(db: Mesh, namespace: str) -> frozenset[str]:
    """Return the hostnames that ServiceEntries in a namespace claim."""
    return frozenset(host for row in _entries_in_namespace(db, namespace) for host in row.spec.hosts)


def _entries_in_namespace(db: Mesh, namespace: str) -> Iterator[Object[ServiceEntry]]:
    """Yield the ServiceEntries of a namespace, except those that exceed its limit. Not memoised."""
    excess = excess_entries(db, namespace)
    for key in SERVICE_ENTRY.keys(db, "namespace", namespace):
        row = SERVICE_ENTRY.get(db, key)
        if row is not None and key not in excess:
            yield row


@derived
def _entries(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def _entry_refs(db: Mesh, key: ObjectKey) -> tuple[ServiceRef, ...] | None:
    row = SERVICE_ENTRY.get(db, key)
    if row is None or is_ignored(db, key):
        return None
    return tuple(ServiceRef(host, key.namespace) for host in row.spec.hosts)


_refs_by_entry: Gather[ObjectKey, [], tuple[ServiceRef, ...]] = Gather("entry_refs", _entries, _entry_refs, hub=True)


@derived
def _kubernetes_refs(db: Mesh) -> tuple[ServiceRef, ...]:
    domain = db.settings.registry.domain
    refs = dict.fromkeys(
        ServiceRef(kubernetes_hostname(key.name, key.namespace, domain), key.namespace) for key in used_keys(db)
    )
    for key in SERVICE_IMPORT.all_keys(db) if has_hosts(db) else ():
        refs[ServiceRef(kubernetes_hostname(key.name, key.namespace, clusterset.DOMAIN), key.namespace)] = None
    return tuple(refs)


@derived
def _all_refs(db: Mesh) -> tuple[ServiceRef, ...]:
    refs = dict.fromkeys(_kubernetes_refs(db))
    for entry_refs in _refs_by_entry(db).values():
        refs.update(dict.fromkeys(entry_refs))
    return tuple(refs)


_summaries: Gather[ServiceRef, [], ServiceSummary] = Gather("service_summaries", _all_refs, service_summary, hub=True)


@hub_in_steps
def service_refs(db: Mesh) -> Steps[tuple[ServiceRef, ...]]:
    """Return the keys of all services, oldest first."""
    summaries = _summaries(db)
    refs, ages = tuple(summaries), [summary.age for summary in summaries.values()]
    texts: list[str] = []  # which have the same order, and are compared in a fraction of the time
    for start in range(0, len(ages), STEP):
        yield None
        texts += map("\0".join, ages[start : start + STEP])
    yield None
    order = sorted(range(len(refs)), key=texts.__getitem__)
    yield None
    return tuple(map(refs.__getitem__, order))


@hub
def traffic_distributions(db: Mesh) -> frozenset[str]:
    """Return the traffic distributions of all services, without "", which does not depend on the client's location."""
    return frozenset(summary.distribution for summary in _summaries(db).values()) - {""}


@hub_in_steps
def _refs_by_audience(db: Mesh) -> Steps[Mapping[str, tuple[ServiceRef, ...]]]:
    """Return the services that are exported by name to a namespace, keyed by namespace, oldest first.

    The key "*" has the public services.
    """
    summaries = _summaries(db)
    audiences: dict[str, list[ServiceRef]] = defaultdict(list)
    for number, ref in enumerate(service_refs(db)):
        for namespace in summaries[ref].exported_to:
            audiences[namespace].append(ref)
        if number % STEP == 0:
            yield None
    return {namespace: tuple(refs) for namespace, refs in audiences.items()}


@hub
def public_refs(db: Mesh) -> tuple[ServiceRef, ...]:
    """Return the services that are visible in every namespace, oldest first."""
    return _refs_by_audience(db).get("*", ())


@derived
def _private_refs(db: Mesh, namespace: str) -> tuple[ServiceRef, ...]:
    return _refs_by_audience(db).get(namespace, ())


@hub
def visible_refs(db: Mesh, namespace: str) -> tuple[ServiceRef, ...]:
    """Return the services that are visible in a namespace.

    Services that are exported to the namespace by name precede public services. Each group is ordered oldest first.
    """
    private = _private_refs(db, namespace)
    return private + public_refs(db) if private else public_refs(db)


@hub
def refs_in_namespace(db: Mesh, namespace: str) -> tuple[ServiceRef, ...]:
    """Return the services that are declared in a namespace, oldest first. Inputs from other namespaces are not read."""
    domain = db.settings.registry.domain
    refs = {
        ServiceRef(kubernetes_hostname(key.name, namespace, domain), namespace) for key in used_keys_in(db, namespace)
    }
    if has_hosts(db):
        imports = SERVICE_IMPORT.keys(db, "namespace", namespace)
        refs |= {ServiceRef(kubernetes_hostname(key.name, namespace, clusterset.DOMAIN), namespace) for key in imports}
    for row in _entries_in_namespace(db, namespace):
        refs.update(ServiceRef(host, namespace) for host in row.spec.hosts)
    return _oldest_first(db, refs)


@derived
def refs_by_hostname(db: Mesh, hostname: str) -> tuple[ServiceRef, ...]:
    """Return the services with a hostname, oldest first. There is at most one in each namespace."""
    refs = {ServiceRef(hostname, key.namespace) for key in SERVICE_ENTRY.keys(db, "host", hostname)}
    name, _, rest = hostname.partition(".")
    namespace = rest.partition(".")[0]
    domains = (db.settings.registry.domain, clusterset.DOMAIN) if has_hosts(db) else (db.settings.registry.domain,)
    if any(hostname == kubernetes_hostname(name, namespace, domain) for domain in domains):
        refs.add(ServiceRef(hostname, namespace))
    return _oldest_first(db, refs)


def _oldest_first(db: Mesh, refs: Iterable[ServiceRef]) -> tuple[ServiceRef, ...]:
    by_age = [(summary.age, ref) for ref in refs if (summary := service_summary(db, ref)) is not None]
    return tuple(ref for _, ref in sorted(by_age))
