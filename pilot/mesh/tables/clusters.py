"""The clusters of the mesh. The own cluster is the one whose configuration counts, named by the setting `cluster_id`."""

from __future__ import annotations

from pilot.config.kinds.kubernetes import SERVICE
from pilot.derive import hub
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh


@hub
def service_clusters(db: Mesh) -> tuple[str, ...]:
    """Returns the clusters that have Kubernetes Services, the own one first, the others by name."""
    return tuple(
        sorted(
            SERVICE.buckets(db, "cluster"), key=lambda cluster: (cluster != db.settings.registry.cluster_id, cluster)
        )
    )


def cluster_of(db: Mesh, proxy: Proxy) -> str:
    """Returns the cluster that a proxy says it runs in, the own one where it says nothing."""
    return proxy.text("CLUSTER_ID", db.settings.registry.cluster_id)


def addressed_as(db: Mesh, proxy: Proxy) -> str:
    """Returns the cluster whose addresses of services come first for a proxy; "" for proxies of the own cluster, and of clusters without services:
    both take the addresses that a service has by default."""
    cluster = cluster_of(db, proxy)
    return cluster if cluster != db.settings.registry.cluster_id and cluster in service_clusters(db) else ""
