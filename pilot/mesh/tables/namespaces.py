"""Labels and annotations of the namespaces of a cluster. A namespace that no object declares has none."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.kubernetes import NAMESPACE
from pilot.config.object import RegistryKey
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh


@derived
def namespace_labels(db: Mesh, cluster: str, namespace: str) -> Mapping[str, str]:
    """Returns the namespace's labels."""
    row = NAMESPACE.get(db, RegistryKey(cluster, "", namespace))
    return row.labels if row is not None else {}


@derived
def namespace_annotations(db: Mesh, cluster: str, namespace: str) -> Mapping[str, str]:
    """Returns the namespace's annotations that matter to a mesh."""
    row = NAMESPACE.get(db, RegistryKey(cluster, "", namespace))
    return row.annotations if row is not None else {}
