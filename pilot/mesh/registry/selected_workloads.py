"""The limit for the workloads that the Services and ServiceEntries of a namespace select.

Each port has an endpoint at each selected workload, and many selectors can select the same workloads. 700 kB of
WorkloadEntries and 300 kB of Services can result in eight million endpoints.

The number of workloads that a selector selects is only estimated, because comparing each selector with each workload
would take as long as the endpoints: it is at most the number of workloads that have the rarest of the labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes.service import Service
from pilot.config.networking.service_entry import WORKLOAD_ENDPOINTS
from pilot.config.object import Object, ObjectKey, age
from pilot.derive import Steps, hub_in_steps
from pilot.lib.labels import TOPOLOGY
from pilot.mesh.registry.pods import pod_labels
from pilot.mesh.registry.workload_entries import entry_labels, entry_namespaces
from pilot.mesh.tables.database import Mesh

STEP = 500
"""Number of workloads or Services that are counted in a step."""
_ANY = ("", "")
Pair = tuple[str, str]
"""A label and its value."""


def most_entries(db: Mesh, namespace: str, selector: Mapping[str, str]) -> int:
    """Return the maximum number of WorkloadEntries that a selector selects. Not memoised."""
    return _most(_entries_by_label(db, namespace), selector)


def most_pods(db: Mesh, namespace: str, selector: Mapping[str, str]) -> int:
    """Return the maximum number of Pods that a selector selects. Not memoised."""
    return _most(_pods_by_label(db, namespace), selector)


def _most(counts: Mapping[Pair, int], selector: Mapping[str, str]) -> int:
    """Return the number of workloads with the rarest label. Labels of the topology are not counted, because they can
    belong to a workload's node or network instead of the workload."""
    return min((counts.get(pair, 0) for pair in selector.items() if pair[0] not in TOPOLOGY), default=counts[_ANY])


@hub_in_steps
def _entries_by_label(db: Mesh, namespace: str) -> Steps[Mapping[Pair, int]]:
    return (yield from _count(entry_labels(db, namespace).values()))


@hub_in_steps
def _pods_by_label(db: Mesh, namespace: str) -> Steps[Mapping[Pair, int]]:
    return (yield from _count(pod_labels(db, namespace).values()))


def _count(workloads: Collection[frozenset[Pair]]) -> Steps[Mapping[Pair, int]]:
    """Return the number of workloads with each label, and the number of all at `_ANY`."""
    counts: Counter[Pair] = Counter({_ANY: len(workloads)})
    for number, labels in enumerate(workloads, 1):
        counts.update(labels)
        if number % STEP == 0:
            yield None
    return counts


@hub_in_steps
def excess_selectors(db: Mesh, namespace: str) -> Steps[frozenset[ObjectKey]]:
    """Return the Services of a namespace that do not select WorkloadEntries, because they and the older ones would have
    more endpoints at them than the settings allow for ServiceEntries.

    Services with the same name in several clusters are one service.
    """
    if namespace not in entry_namespaces(db):
        return frozenset()
    rows: list[Object[Service]] = []
    for number, key in enumerate(SERVICE.keys(db, "namespace", namespace), 1):
        if (row := SERVICE.get(db, key)) is not None and row.spec.selector:
            rows.append(row)
        if number % STEP == 0:
            yield None
    limit, total, excess = db.settings.registry.max_entry_endpoints, 0, set()
    for number, row in enumerate(sorted(rows, key=age), 1):
        size = WORKLOAD_ENDPOINTS * len(row.spec.first_ports) * most_entries(db, namespace, row.spec.selector)
        if total + size > limit:
            excess.add(row.key)
        else:
            total += size
        if number % STEP == 0:
            yield None
    return frozenset(excess)
