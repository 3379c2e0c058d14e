"""The workloads whose traffic a ztunnel captures."""

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
    tunnel = tunnels(row.labels, row.annotations) if row is not None else {}
    return frozenset(row.labels.items()) if row is not None and tunnel["tunnels"] and not tunnel["native"] else None


_labels: Gather[RegistryKey, [str], Labels] = Gather("labels of captured pods", _pods_in, _captured)


@hub
def captured_labels(db: Mesh, namespace: str) -> frozenset[Labels]:
    """Return the distinct label sets of the captured Pods in a namespace."""
    return frozenset(_labels(db, namespace).values())


@hub
def capturing_namespaces(db: Mesh) -> tuple[str, ...]:
    """Return the namespaces with captured Pods."""
    return tuple(namespace for namespace in pod_namespaces(db) if captured_labels(db, namespace))
