"""Workloads whose traffic a ztunnel has captured."""

from __future__ import annotations

from pilot.config.kinds.kubernetes import POD
from pilot.config.object import RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.ambient.workloads import tunnels
from pilot.mesh.model.facets import Labels
from pilot.mesh.registry.pods import pod_namespaces
from pilot.mesh.tables.database import Mesh


@derived
def _pods_in(db: Mesh, namespace: str) -> tuple[RegistryKey, ...]:
    return POD.keys(db, "namespace", namespace)


@derived
def _captured(db: Mesh, key: RegistryKey, _: str) -> Labels | None:
    row = POD.get(db, key)
    how = tunnels(row.labels, row.annotations) if row is not None else {}
    return frozenset(row.labels.items()) if row is not None and how["tunnels"] and not how["native"] else None


_labels: Gather[RegistryKey, [str], Labels] = Gather("labels of captured pods", _pods_in, _captured)


@hub
def captured_labels(db: Mesh, namespace: str) -> frozenset[Labels]:
    """Returns the labels of the Pods of a namespace that ztunnels have captured, each set once."""
    return frozenset(_labels(db, namespace).values())


@hub
def capturing_namespaces(db: Mesh) -> tuple[str, ...]:
    """Returns the namespaces that have any such Pod."""
    return tuple(namespace for namespace in pod_namespaces(db) if captured_labels(db, namespace))
