"""Checks that selectors match workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from pilot.config.problem import Problems, warning
from pilot.derive import derived
from pilot.lib.suggestion import closest
from pilot.mesh.registry.pod_templates import template_labels, template_namespaces, templates_with
from pilot.mesh.registry.pods import pod_labels, pod_namespaces
from pilot.mesh.registry.workload_entries import entry_labels, entry_namespaces
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy, routers

Labels = frozenset[tuple[str, str]]
_MAX_SETS, _MAX_COMPARED = 1000, 30
"""Maximum numbers of label sets that are read for a suggestion, and of words that are compared with a word. Comparing
two long words takes up to 0.3 ms."""


@derived
def label_sets(db: Mesh, namespace: str) -> frozenset[Labels]:
    """Return the distinct label sets of the workloads in a namespace. Workloads that are not ready, and templates of
    Pods, are included."""
    return frozenset(
        (*pod_labels(db, namespace).values(), *entry_labels(db, namespace).values(), *template_labels(db, namespace))
    )


def has_workloads(db: Mesh) -> bool:
    """Return whether the workloads of the mesh are known, so that what no Pod or WorkloadEntry has does not exist.

    Files usually contain no Pods. Without them, a selector that matches nothing is not a mistake.
    """
    return bool(pod_namespaces(db) or entry_namespaces(db))


def check_selector(db: Mesh, namespace: str, labels: Mapping[str, str]) -> Problems:
    """Yield a problem if no workload in the namespace has all the labels. An empty selector matches every workload.

    Connected routers without Pods do not count as knowledge of workloads, because sidecars may have no Pods either.
    """
    if not labels or not (has_workloads(db) or template_labels(db, namespace)):
        return
    if not any(labels.items() <= have for have in (*label_sets(db, namespace), *router_labels(db, namespace))):
        message = f"no workload in namespace {namespace} has the labels {format_labels(labels)}"
        yield warning("selector-without-workloads", "", message + _suggestion(db, labels, (namespace,)))


def check_selector_anywhere(db: Mesh, labels: Mapping[str, str], first: str) -> Problems:
    """Yield a problem if no workload in any namespace has all the labels. `first` is the object's own namespace.

    Templates of Pods in files are often not those of the whole mesh. If only they are known, labels that resemble none
    of theirs may belong to another workload.
    """
    if not labels or selected_anywhere(db, labels, first):
        return
    namespaces = dict.fromkeys((first, *template_namespaces(db), *pod_namespaces(db), *entry_namespaces(db)))
    if any(templates_with(db, namespace, labels) for namespace in namespaces):
        return
    suggestion = _suggestion(db, labels, namespaces)
    if suggestion or has_workloads(db) or _connected_routers(db):
        text = f"no workload has the labels {format_labels(labels)}{suggestion}"
        yield warning("selector-without-workloads", "", text)


def _suggestion(db: Mesh, labels: Mapping[str, str], namespaces: Iterable[str]) -> str:
    """Return a question that suggests the label of a workload that is most similar to one that no workload has."""
    compared = ((namespace, have) for namespace in namespaces for have in label_sets(db, namespace))
    pairs: dict[tuple[str, str], str] = {}
    for namespace, have in islice(compared, _MAX_SETS):
        for pair in have:
            pairs.setdefault(pair, namespace)
    for name, value in sorted(labels.items() - pairs.keys()):
        similar = _closest(value, {other for key, other in pairs if key == name})
        key = name if similar else _closest(name, {key for key, other in pairs if other == value})
        likely = (key, similar or value)
        if likely in pairs:
            return f"; did you mean {'='.join(likely)} ({_owner(db, pairs[likely], likely)})?"
    return ""


def _closest(word: str, words: Iterable[str]) -> str:
    """Return the most similar of the words whose length is the most similar, or "" if none of them is similar."""
    by_length = sorted(words, key=lambda other: (abs(len(other) - len(word)), other))
    return closest(word, by_length[:_MAX_COMPARED])


def _owner(db: Mesh, namespace: str, pair: tuple[str, str]) -> str:
    """Return the workload that has a label in a namespace, or the namespace if the workload has Pods."""
    template = next(iter(templates_with(db, namespace, dict((pair,)))), None)
    return f"{template.kind.name} {namespace}/{template.name}" if template is not None else f"namespace {namespace}"


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
