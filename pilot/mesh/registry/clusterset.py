"""Services that clusters share by Kubernetes' multi-cluster services: who exports one, and where its endpoints are seen.

https://multicluster.sigs.k8s.io/concepts/multicluster-services-api/
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.kinds.kubernetes import SERVICE_EXPORT
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.model.service import Registry, Service
from pilot.mesh.tables.clusters import is_cluster_local
from pilot.mesh.tables.database import Mesh

DOMAIN = "clusterset.local"


class Bounds(NamedTuple):
    """Says whether endpoints are seen in their own cluster alone, or else, where `exporting` is not None, elsewhere only those of these clusters."""

    cluster_local: bool = False
    exporting: frozenset[str] | None = None

    def leaves(self, cluster: str) -> bool:
        """Returns whether endpoints of a cluster are seen in others."""
        return not self.cluster_local and (self.exporting is None or cluster in self.exporting)


@derived
def exporting_clusters(db: Mesh, key: ObjectKey) -> frozenset[str]:
    """Returns the clusters that export the Services of a name."""
    return frozenset(found.cluster for found in SERVICE_EXPORT.keys(db, "named", (key.namespace, key.name)))


def bounds(db: Mesh, found: Service) -> Bounds:
    """Returns where the endpoints of a service are seen. No node of its own."""
    registry = db.settings.registry
    if is_cluster_local(db, found.hostname):
        return Bounds(cluster_local=True)
    if not registry.mcs_discovery or found.registry is not Registry.KUBERNETES:
        return Bounds()
    if registry.mcs_hosts and registry.mcs_cluster_local and not found.hostname.endswith(f".{DOMAIN}"):
        return Bounds(cluster_local=True)
    return Bounds(exporting=exporting_clusters(db, ObjectKey(found.namespace, found.name)))


def has_hosts(db: Mesh) -> bool:
    """Returns whether services that are shared have names of their own. No node of its own."""
    return db.settings.registry.mcs_discovery and db.settings.registry.mcs_hosts
