"""Services that clusters share through the Kubernetes Multi-Cluster Services (MCS) API: the clusters that export them,
and the endpoints that are visible in other clusters.

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


class EndpointVisibility(NamedTuple):
    """The endpoints of a service that are visible in other clusters.

    If `cluster_local`, no endpoints are visible. Otherwise, those in the `exporting` clusters are visible, or all
    endpoints if `exporting` is None.
    """

    cluster_local: bool = False
    exporting: frozenset[str] | None = None

    def is_exported_from(self, cluster: str) -> bool:
        """Return True if the endpoints in `cluster` are visible in other clusters."""
        return not self.cluster_local and (self.exporting is None or cluster in self.exporting)


@derived
def exporting_clusters(db: Mesh, key: ObjectKey) -> frozenset[str]:
    """Return the clusters that export the Service with this namespace and name."""
    return frozenset(export.cluster for export in SERVICE_EXPORT.keys(db, "named", (key.namespace, key.name)))


def endpoint_visibility(db: Mesh, service: Service) -> EndpointVisibility:
    """Return which endpoints of a service are visible in other clusters. Not memoised."""
    registry = db.settings.registry
    if is_cluster_local(db, service.hostname):
        return EndpointVisibility(cluster_local=True)
    if not registry.mcs_discovery or service.registry is not Registry.KUBERNETES:
        return EndpointVisibility()
    if registry.mcs_hosts and registry.mcs_cluster_local and not service.hostname.endswith(f".{DOMAIN}"):
        return EndpointVisibility(cluster_local=True)
    return EndpointVisibility(exporting=exporting_clusters(db, ObjectKey(service.namespace, service.name)))


def has_hosts(db: Mesh) -> bool:
    """Return True if shared services have additional hostnames in the clusterset domain. Not memoised."""
    return db.settings.registry.mcs_discovery and db.settings.registry.mcs_hosts
