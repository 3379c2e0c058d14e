"""The clusters whose workloads and services ztunnels receive."""

from __future__ import annotations

from pilot.mesh.tables.database import Mesh


def is_included(db: Mesh, cluster: str) -> bool:
    """Return whether ztunnels receive a cluster's workloads: the local cluster, or all in a multi-network mesh. Not
    memoised."""
    ambient = db.settings.ambient
    return ambient.enabled and (ambient.multi_network or cluster == db.settings.registry.cluster_id)
