"""Selectors have to select workloads."""

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
    """Returns the labels of each workload of a namespace, ready or not; equal ones once."""
    return frozenset((*pod_labels(db, namespace).values(), *entry_labels(db, namespace).values()))


def check_selector(db: Mesh, namespace: str, labels: Mapping[str, str]) -> Problems:
    """Yields a problem where no workload of the namespace has all the labels; no labels mean every workload."""
    if labels and not any(labels.items() <= have for have in label_sets(db, namespace)):
        yield warning("selector-without-workloads", "", f"no workload of namespace {namespace} has {shown(labels)}")


def selected_anywhere(db: Mesh, labels: Mapping[str, str], first: str) -> list[tuple[str, Labels]]:
    """Returns the namespace and labels of each workload that has all the labels: those of the namespace `first` where there are some, else all."""
    if own := _selected(db, labels, (first,)):
        return own
    if elsewhere := _selected(db, labels, dict.fromkeys((*pod_namespaces(db), *entry_namespaces(db)))):
        return elsewhere
    return [(namespace, have) for namespace, have in _known_routers(db) if labels.items() <= have]


def _selected(db: Mesh, labels: Mapping[str, str], namespaces: Iterable[str]) -> list[tuple[str, Labels]]:
    return [(n, have) for n in namespaces for have in label_sets(db, n) if labels.items() <= have]


@derived
def _known_routers(db: Mesh) -> frozenset[tuple[str, Labels]]:
    """Returns the namespace and labels of each connected router, in a registry or not."""
    return frozenset(
        (find_proxy(db, node_id).namespace, frozenset(proxy_labels(db, node_id).items())) for node_id in routers(db)
    )


def router_labels(db: Mesh, namespace: str) -> list[Labels]:
    """Returns the labels of each connected router of a namespace. No node of its own."""
    return [labels for where, labels in _known_routers(db) if where == namespace]


def shown(labels: Mapping[str, str]) -> str:
    """Returns labels as a user would type them."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
