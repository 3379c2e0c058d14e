"""The limit for the ServiceEntries of a namespace.

A ServiceEntry of 5 kB can have 800 clusters with 100 endpoints each, and a namespace can have many of them. Without a
limit, one tenant could exhaust the memory of the control plane and of all proxies.
"""

from __future__ import annotations

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import PORT_ENDPOINTS, ServiceEntry, count_expanded
from pilot.config.object import Object, ObjectKey, age
from pilot.derive import Steps, derived, hub_in_steps
from pilot.mesh.registry.selected_workloads import most_entries, most_pods
from pilot.mesh.tables.database import Mesh

STEP = 200
"""Number of ServiceEntries that are counted in a step."""


def expanded_endpoints(db: Mesh, row: Object[ServiceEntry]) -> int:
    """Return the number of endpoints that a ServiceEntry expands to. Not memoised."""
    selected, selector = 0, row.spec.workload_selector
    if selector is not None:
        selected = most_entries(db, row.namespace, selector.labels)
        if db.settings.registry.entries_select_pods:
            selected += most_pods(db, row.namespace, selector.labels)
    return count_expanded(row.spec, selected)


@derived
def is_ignored(db: Mesh, key: ObjectKey) -> bool:
    """Return whether a ServiceEntry is ignored because of the limit."""
    return key in excess_entries(db, key.namespace)


@hub_in_steps
def excess_entries(db: Mesh, namespace: str) -> Steps[frozenset[ObjectKey]]:
    """Return the ServiceEntries of a namespace that are ignored, because they and the older ones expand to more
    endpoints than the settings allow, those at workloads that they select included.

    Each port number of the namespace counts once. 3000 clusters, which is the default, take up to 80 MB.
    """
    rows: list[tuple[Object[ServiceEntry], int]] = []
    for number, key in enumerate(SERVICE_ENTRY.keys(db, "namespace", namespace), 1):
        if (row := SERVICE_ENTRY.get(db, key)) is not None:
            rows.append((row, expanded_endpoints(db, row)))
        if number % STEP == 0:
            yield None
    limit, total, excess = db.settings.registry.max_entry_endpoints, 0, set()
    numbers: set[int] = set()
    for row, expanded in sorted(rows, key=lambda pair: age(pair[0])):
        more = {port.number for port in row.spec.ports} - numbers
        size = expanded + len(more) * PORT_ENDPOINTS
        if total + size > limit:
            excess.add(row.key)
        else:
            total += size
            numbers |= more
    return frozenset(excess)
