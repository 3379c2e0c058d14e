"""Checks that selectors match workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.problem import Problems, warning
from pilot.derive import derived
from pilot.mesh.registry.pods import pod_labels, pod_namespaces
from pilot.mesh.registry.workload_entries import entry_labels, entry_namespaces
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy, routers

Labels = frozenset[tuple[str, str]]


@derived
def label_sets(db: Mesh, namespace: str) -> frozenset[Labels]:
    """Return the distinct label sets of the workloads in a namespace. Workloads that are not ready are included."""
    return frozenset((*pod_labels(db, namespace).values(), *entry_labels(db, namespace).values()))


@derived
def has_workloads(db: Mesh) -> bool:
    """Return whether the labels of any workload or router are known.

    Files usually contain no Pods. Without them, a selector that matches nothing is not a mistake.
    """
    return _has_pods_or_entries(db) or bool(_connected_routers(db))


def _has_pods_or_entries(db: Mesh) -> bool:
    return bool(pod_namespaces(db) or entry_namespaces(db))


def check_selector(db: Mesh, namespace: str, labels: Mapping[str, str]) -> Problems:
    """Yield a problem if no workload in the namespace has all the labels. An empty selector matches every workload.

    Connected routers without Pods do not count as knowledge of workloads, because sidecars may have no Pods either.
    """
    if not labels or not _has_pods_or_entries(db):
        return
    if not any(labels.items() <= have for have in (*label_sets(db, namespace), *router_labels(db, namespace))):
        message = f"no workload in namespace {namespace} has the labels {format_labels(labels)}"
        yield warning("selector-without-workloads", "", message)


def selected_anywhere(db: Mesh, labels: Mapping[str, str], first: str) -> list[tuple[str, Labels]]:
    """Return the namespace and labels of each workload that has all `labels`.

    If the namespace `first` has matching workloads, only these are returned.
    """
    if local := _selected(db, labels, (first,)):
        return local
    if elsewhere := _selected(db, labels, dict.fromkeys((*pod_namespaces(db), *entry_namespaces(db)))):
        return elsewhere
    return [(namespace, have) for namespace, have in _connected_routers(db) if labels.items() <= have]


def _selected(db: Mesh, labels: Mapping[str, str], namespaces: Iterable[str]) -> list[tuple[str, Labels]]:
    return [(n, have) for n in namespaces for have in label_sets(db, n) if labels.items() <= have]


@derived
def _connected_routers(db: Mesh) -> frozenset[tuple[str, Labels]]:
    """Return the namespace and labels of each connected router. Routers without a Pod or WorkloadEntry are included."""
    return frozenset(
        (find_proxy(db, node_id).namespace, frozenset(proxy_labels(db, node_id).items())) for node_id in routers(db)
    )


def router_labels(db: Mesh, namespace: str) -> list[Labels]:
    """Return the labels of each connected router in a namespace. Not memoised."""
    return [labels for where, labels in _connected_routers(db) if where == namespace]


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels as a string such as "app=web,version=v1"."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
