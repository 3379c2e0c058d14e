"""Networks in ambient mode: that of a cluster, and the gateways that take HBONE into others."""
from __future__ import annotations

from pilot.derive import derived
from pilot.lib.labels import NETWORK
from pilot.model.inputs import Mesh
from pilot.model.views.namespaces import namespace_labels


@derived
def cluster_network(db: Mesh, cluster: str) -> str:
    """Returns the network of a cluster, which the label of the control plane's namespace there says; "" where it has none."""
    return namespace_labels(db, cluster, db.settings.registry.namespace).get(NETWORK, "")
