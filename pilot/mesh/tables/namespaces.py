"""Labels and annotations of namespaces. A namespace that is not declared has none."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.kubernetes import NAMESPACE
from pilot.config.object import RegistryKey
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh


@derived
def namespace_labels(db: Mesh, cluster: str, namespace: str) -> Mapping[str, str]:
    """Return the labels of a namespace in a cluster."""
    row = NAMESPACE.get(db, RegistryKey(cluster, "", namespace))
    return row.labels if row is not None else {}


@derived
def namespace_annotations(db: Mesh, cluster: str, namespace: str) -> Mapping[str, str]:
    """Return the annotations of a namespace in a cluster, limited to annotations that can affect the mesh."""
    row = NAMESPACE.get(db, RegistryKey(cluster, "", namespace))
    return row.annotations if row is not None else {}
