"""The limit for the ports of the Kubernetes Services of a namespace.

Each port has clusters, endpoints, listeners and routes. A Service of 36 kB can have 1000 ports, and a namespace can
have many of them. Without a limit, one tenant could exhaust the memory of the control plane and of all proxies.
"""

from __future__ import annotations

from collections import Counter

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, SERVICE
from pilot.config.kubernetes.service import FREE_PORTS, Service, ServicePort
from pilot.config.networking.service_entry import CLUSTER_ENDPOINTS, WORKLOAD_ENDPOINTS
from pilot.config.object import Object, ObjectKey, RegistryKey, age
from pilot.derive import Steps, derived, hub_in_steps
from pilot.mesh.tables.database import Mesh

STEP = 200
"""Number of Services that are counted in a step."""


def used_ports(db: Mesh, key: RegistryKey, row: Object[Service]) -> tuple[ServicePort, ...]:
    """Return the ports of a Service that are used. Not memoised."""
    ports = row.spec.first_ports
    is_limited = len(ports) > FREE_PORTS and key in excess_services(db, key.namespace)
    return ports[:FREE_PORTS] if is_limited else ports


@derived
def _endpoints_in_clusters(db: Mesh, key: ObjectKey) -> int:
    """Return the number of clusters that cost as much as the endpoints of a port in EndpointSlices."""
    rows = (ENDPOINT_SLICE.get(db, slice_key) for slice_key in ENDPOINT_SLICE.keys(db, "service", key))
    endpoints = sum(len(row.spec.endpoints) for row in rows if row is not None)
    return endpoints * WORKLOAD_ENDPOINTS // CLUSTER_ENDPOINTS


@hub_in_steps
def excess_services(db: Mesh, namespace: str) -> Steps[frozenset[RegistryKey]]:
    """Return the Services of a namespace of which only the first ports are used, because they and the older ones have
    more ports than the settings allow.

    The first `FREE_PORTS` of each Service do not count. Each other port counts once, and again for every 13 endpoints
    of the Service in EndpointSlices. Services with the same name in several clusters are one service.
    """
    rows: list[tuple[RegistryKey, Object[Service]]] = []
    for number, key in enumerate(SERVICE.keys(db, "many_ports", namespace), 1):
        if (row := SERVICE.get(db, key)) is not None:
            rows.append((key, row))
        if number % STEP == 0:
            yield None
    counted: Counter[str] = Counter()
    total, excess = 0, set()
    for key, row in sorted(rows, key=lambda pair: age(pair[1])):
        more = max(0, len(row.spec.first_ports) - FREE_PORTS - counted[row.name])
        yield _endpoints_in_clusters.step(row.key)
        size = more * (1 + _endpoints_in_clusters(db, row.key))
        if total + size > db.settings.registry.max_service_ports:
            excess.add(key)
        else:
            total += size
            counted[row.name] += more
    return frozenset(excess)
