"""The limits for the Kubernetes Services of a namespace and their ports.

Each port has clusters, endpoints, listeners and routes. A Service of 36 kB can have 1000 ports, and a namespace can
have thousands of Services. Without a limit, one tenant could exhaust the memory of the control plane and of all
proxies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, SERVICE
from pilot.config.kubernetes.service import FREE_PORTS, Service, ServicePort
from pilot.config.networking.service_entry import CLUSTER_ENDPOINTS, WORKLOAD_ENDPOINTS
from pilot.config.object import Object, ObjectKey, RegistryKey, age
from pilot.derive import Steps, derived, hub_in_steps
from pilot.mesh.tables.database import Mesh

STEP = 200
"""Number of Services that are counted in a step."""


class ExcessServices(NamedTuple):
    """The Services of a namespace that exceed its limits: those of which only the first ports are used, and those that
    are ignored."""

    shortened: frozenset[RegistryKey]
    ignored: frozenset[RegistryKey]


_NO_SERVICES = ExcessServices(frozenset(), frozenset())


def used_service(db: Mesh, key: RegistryKey) -> Object[Service] | None:
    """Return a Kubernetes Service, or None if it does not exist or is ignored. Not memoised."""
    row = SERVICE.get(db, key)
    return row if row is not None and key not in excess_services(db, key.namespace).ignored else None


def used_ports(db: Mesh, key: RegistryKey, row: Object[Service]) -> tuple[ServicePort, ...]:
    """Return the ports of a Service that are used. Not memoised."""
    ports = row.spec.first_ports
    is_limited = len(ports) > FREE_PORTS and key in excess_services(db, key.namespace).shortened
    return ports[:FREE_PORTS] if is_limited else ports


def used_keys(db: Mesh) -> Iterator[RegistryKey]:
    """Yield the keys of all Kubernetes Services that are not ignored. Not memoised."""
    ignored = {key for namespace in SERVICE.buckets(db, "namespace") for key in excess_services(db, namespace).ignored}
    return (key for key in SERVICE.all_keys(db) if key not in ignored)


def used_keys_in(db: Mesh, namespace: str) -> Iterator[RegistryKey]:
    """Yield the keys of the Kubernetes Services of a namespace that are not ignored. Not memoised."""
    ignored = excess_services(db, namespace).ignored
    return (key for key in SERVICE.keys(db, "namespace", namespace) if key not in ignored)


@derived
def _endpoints_in_clusters(db: Mesh, key: ObjectKey) -> int:
    """Return the number of clusters that cost as much as the endpoints of a port in EndpointSlices."""
    rows = (ENDPOINT_SLICE.get(db, slice_key) for slice_key in ENDPOINT_SLICE.keys(db, "service", key))
    endpoints = sum(len(row.spec.endpoints) for row in rows if row is not None)
    return endpoints * WORKLOAD_ENDPOINTS // CLUSTER_ENDPOINTS


@hub_in_steps
def excess_services(db: Mesh, namespace: str) -> Steps[ExcessServices]:
    """Return the Services of a namespace that exceed its limits, because they and the older ones have more ports than
    the settings allow.

    Only the first ports of a Service are used if the other ports exceed `max_service_ports`. Each of them counts once,
    and again for every 13 endpoints of the Service in EndpointSlices. A Service is ignored if the Services and their
    used ports exceed `max_services`. Services with the same name in several clusters are one service.
    """
    settings = db.settings.registry
    keys = SERVICE.keys(db, "namespace", namespace)
    most = len(keys) * (1 + FREE_PORTS) + settings.max_service_ports
    if most <= settings.max_services:  # none is ignored, so only Services with more ports count
        keys = SERVICE.keys(db, "many_ports", namespace)
    rows: list[tuple[RegistryKey, Object[Service]]] = []
    for number, key in enumerate(keys, 1):
        if (row := SERVICE.get(db, key)) is not None:
            rows.append((key, row))
        if number % STEP == 0:
            yield None
    rows.sort(key=lambda pair: age(pair[1]))
    ports_by_name: Counter[str] = Counter()
    total = extra = 0
    shortened, ignored = set(), set()
    for number, (key, row) in enumerate(rows, 1):
        ports, counted = len(row.spec.first_ports), ports_by_name[row.name]
        if more := max(0, ports - max(FREE_PORTS, counted)):
            yield _endpoints_in_clusters.step(row.key)
            more *= 1 + _endpoints_in_clusters(db, row.key)
            if extra + more > settings.max_service_ports:
                shortened.add(key)
                ports = FREE_PORTS
        elif number % STEP == 0:
            yield None
        size = max(0, ports - counted) + (row.name not in ports_by_name)
        if total + size > settings.max_services:
            ignored.add(key)
        else:
            total += size
            extra += more if key not in shortened else 0
            ports_by_name[row.name] = max(ports, counted)
    return ExcessServices(frozenset(shortened), frozenset(ignored)) if shortened or ignored else _NO_SERVICES
