"""The clusters whose workloads and services ztunnels are told of."""

from __future__ import annotations

from pilot.mesh.tables.database import Mesh


def is_told(db: Mesh, cluster: str) -> bool:
    """Returns whether ztunnels are told of what runs in a cluster: in the own one, and in others where the mesh crosses networks. No node of its
    own."""
    ambient = db.settings.ambient
    return ambient.enabled and (ambient.multi_network or cluster == db.settings.registry.cluster_id)
