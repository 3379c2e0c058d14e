"""Keeps out of the tables what is in namespaces that do not count, by `discoverySelectors` of the mesh config.

https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig
Objects of any kind in a namespace that no selector selects never reach the tables. They are held back, so that a namespace that is
selected later joins with all that it has; the selectors of the mesh config hold for the namespaces of every cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from pilot.config.kinds.kubernetes import NAMESPACE
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.selector import LabelSelector
from pilot.mesh.model.visibility import NAMESPACE_NAME_LABEL, selects
from pilot.mesh.tables.database import MESH_CONFIG, Mesh

Edit = tuple[str, Hashable, Any]
"""The name of a table, a key, and the row, None to delete it."""
Selectors = tuple[LabelSelector, ...]


class ClusterNamespace(NamedTuple):
    """A namespace of a cluster."""

    cluster: str
    namespace: str


class NamespaceFilter:
    """Decides about edits on their way to the tables. It sees every edit, in order."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._selectors: Selectors = ()
        self._held: dict[ClusterNamespace, dict[tuple[str, Hashable], Any]] = {}

    def admit(self, edits: Iterable[Edit]) -> list[Edit]:
        """Returns the edits that the tables are to have: those of selected namespaces, and all rows of a namespace that joins or leaves."""
        given = {(table, key): row for table, key, row in edits}
        before, after = self._selectors, self._selectors_of(given)
        if not before and not after:
            return [(table, key, row) for (table, key), row in given.items()]
        self._selectors = after
        labels = _labels_given(given)
        out: dict[tuple[str, Hashable], Any] = {}
        for place in self._known_places() | labels.keys() if before != after else labels:
            old = self._labels(place)
            self._move(place, _selected(before, place, old), _selected(after, place, labels.get(place, old)), out)
        for (table, key), row in given.items():
            where = self._place(table, key)
            if where is None or _selected(after, where, labels.get(where, self._labels(where))):
                out[table, key] = row
            elif row is not None:
                self._held.setdefault(where, {})[table, key] = row
            else:
                self._held.get(where, {}).pop((table, key), None)
        return [(table, key, row) for (table, key), row in out.items()]

    def _selectors_of(self, given: Mapping[tuple[str, Hashable], Any]) -> Selectors:
        found = given.get((MESH_CONFIG, "mesh"))
        return found.discovery_selectors if isinstance(found, MeshConfig) else self._selectors

    def _move(self, place: ClusterNamespace, was: bool, now: bool, out: dict[tuple[str, Hashable], Any]) -> None:
        """Adds to the edits what a namespace brings that is selected now, or takes away that is selected no more."""
        if now and not was:
            out.update(self._held.pop(place, {}))
        elif was and not now:
            rows = self._rows(place)
            out.update(dict.fromkeys(rows))
            self._held.setdefault(place, {}).update(rows)

    def _place(self, table: str, key: Any) -> ClusterNamespace | None:
        """Returns the namespace of an object; None for what is in none."""
        kind = self._mesh.catalogue.find_by_table(table)
        if kind is None or not kind.namespaced:
            return None
        return ClusterNamespace(
            key.cluster if isinstance(key, RegistryKey) else self._mesh.settings.registry.cluster_id, key.namespace
        )

    def _labels(self, place: ClusterNamespace) -> Mapping[str, str]:
        """Returns the labels that a namespace had before the edits."""
        row = NAMESPACE.table(self._mesh).peek(RegistryKey(place.cluster, "", place.namespace))
        return row.labels if row is not None else {}

    def _known_places(self) -> set[ClusterNamespace]:
        kinds = [kind for kind in self._mesh.catalogue if kind.namespaced]
        shown = {self._place(kind.table_name, key) for kind in kinds for key, _ in kind.table(self._mesh).rows()}
        return {place for place in shown if place is not None} | self._held.keys()

    def _rows(self, place: ClusterNamespace) -> dict[tuple[str, Hashable], Any]:
        """Returns what the tables hold of a namespace."""
        own = place.cluster == self._mesh.settings.registry.cluster_id
        found: dict[tuple[str, Hashable], Any] = {}
        for kind in self._mesh.catalogue:
            table = kind.table(self._mesh)
            for key in table.peek_keys("namespace", place.namespace) if kind.namespaced else ():
                if own if isinstance(key, ObjectKey) else key.cluster == place.cluster:
                    found[kind.table_name, key] = table.peek(key)
        return found


def _labels_given(given: Mapping[tuple[str, Any], Any]) -> dict[ClusterNamespace, Mapping[str, str]]:
    """Returns the labels that edited namespaces have from now on."""
    namespaces = ((key, row) for (table, key), row in given.items() if table == NAMESPACE.table_name)
    return {ClusterNamespace(key.cluster, key.name): row.labels if row is not None else {} for key, row in namespaces}


def _selected(selectors: Selectors, place: ClusterNamespace, labels: Mapping[str, str]) -> bool:
    """Returns whether any selector selects a namespace; none at all select every one. Its name is a label of it, as in Kubernetes."""
    return not selectors or any(
        selects(selector, {NAMESPACE_NAME_LABEL: place.namespace, **labels}) for selector in selectors
    )
