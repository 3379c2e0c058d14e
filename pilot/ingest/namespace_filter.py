"""Filters objects by namespace, according to `discoverySelectors` in the mesh config.

Objects in namespaces that are not selected are kept out of the tables. They are added if the namespace is selected
later. The selectors apply to the namespaces of every cluster.

https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig
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
"""The name of a table, a key, and the new row, which is None if the row is deleted."""
Selectors = tuple[LabelSelector, ...]


class ClusterNamespace(NamedTuple):
    """A namespace in a cluster."""

    cluster: str
    namespace: str


class NamespaceFilter:
    """Filters the edits of the tables. Every edit must pass through it, in order."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._selectors: Selectors = ()
        self._withheld: dict[ClusterNamespace, dict[tuple[str, Hashable], Any]] = {}

    def admit(self, edits: Iterable[Edit]) -> list[Edit]:
        """Return the edits in selected namespaces. If a namespace becomes selected or stops being selected, the result
        also contains the edits that add or delete all of its rows."""
        rows_by_key = {(table, key): row for table, key, row in edits}
        before, after = self._selectors, self._selectors_of(rows_by_key)
        if not before and not after:
            return [(table, key, row) for (table, key), row in rows_by_key.items()]
        self._selectors = after
        labels = _new_labels(rows_by_key)
        out: dict[tuple[str, Hashable], Any] = {}
        for place in self._all_places() | labels.keys() if before != after else labels:
            old = self._labels(place)
            self._move(place, _selected(before, place, old), _selected(after, place, labels.get(place, old)), out)
        for (table, key), row in rows_by_key.items():
            where = self._place(table, key)
            if where is None or _selected(after, where, labels.get(where, self._labels(where))):
                out[table, key] = row
            elif row is not None:
                self._withheld.setdefault(where, {})[table, key] = row
            else:
                self._withheld.get(where, {}).pop((table, key), None)
        return [(table, key, row) for (table, key), row in out.items()]

    def _selectors_of(self, rows_by_key: Mapping[tuple[str, Hashable], Any]) -> Selectors:
        mesh_config = rows_by_key.get((MESH_CONFIG, "mesh"))
        return mesh_config.discovery_selectors if isinstance(mesh_config, MeshConfig) else self._selectors

    def _move(self, place: ClusterNamespace, was: bool, now: bool, out: dict[tuple[str, Hashable], Any]) -> None:
        """Add the edits for a namespace to `out` if its selection changes."""
        if now and not was:
            out.update(self._withheld.pop(place, {}))
        elif was and not now:
            rows = self._rows(place)
            out.update(dict.fromkeys(rows))
            self._withheld.setdefault(place, {}).update(rows)

    def _place(self, table: str, key: Any) -> ClusterNamespace | None:
        """Return the namespace of an object, or None if the object is cluster-scoped."""
        kind = self._mesh.catalogue.find_by_table(table)
        if kind is None or not kind.namespaced:
            return None
        return ClusterNamespace(
            key.cluster if isinstance(key, RegistryKey) else self._mesh.settings.registry.cluster_id, key.namespace
        )

    def _labels(self, place: ClusterNamespace) -> Mapping[str, str]:
        """Return the labels of a namespace before the edits."""
        row = NAMESPACE.table(self._mesh).peek(RegistryKey(place.cluster, "", place.namespace))
        return row.labels if row is not None else {}

    def _all_places(self) -> set[ClusterNamespace]:
        kinds = [kind for kind in self._mesh.catalogue if kind.namespaced]
        places = {self._place(kind.table_name, key) for kind in kinds for key, _ in kind.table(self._mesh).rows()}
        return {place for place in places if place is not None} | self._withheld.keys()

    def _rows(self, place: ClusterNamespace) -> dict[tuple[str, Hashable], Any]:
        """Return all rows of a namespace."""
        own = place.cluster == self._mesh.settings.registry.cluster_id
        rows: dict[tuple[str, Hashable], Any] = {}
        for kind in self._mesh.catalogue:
            table = kind.table(self._mesh)
            for key in table.peek_keys("namespace", place.namespace) if kind.namespaced else ():
                if own if isinstance(key, ObjectKey) else key.cluster == place.cluster:
                    rows[kind.table_name, key] = table.peek(key)
        return rows


def _new_labels(rows_by_key: Mapping[tuple[str, Any], Any]) -> dict[ClusterNamespace, Mapping[str, str]]:
    """Return the new labels of each namespace that is edited."""
    namespaces = ((key, row) for (table, key), row in rows_by_key.items() if table == NAMESPACE.table_name)
    return {ClusterNamespace(key.cluster, key.name): row.labels if row is not None else {} for key, row in namespaces}


def _selected(selectors: Selectors, place: ClusterNamespace, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches a namespace, or True if there are no selectors.

    As in Kubernetes, the name of a namespace is also a label.
    """
    return not selectors or any(
        selects(selector, {NAMESPACE_NAME_LABEL: place.namespace, **labels}) for selector in selectors
    )
