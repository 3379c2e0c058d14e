"""The mesh config and the mesh networks."""

from __future__ import annotations

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh

BUILT_IN = MeshConfig()


def mesh_config(db: Mesh) -> MeshConfig:
    """Return the whole mesh config. Every edit to it reruns the callers, so values with many readers are read through a
    hub."""
    config = db.mesh.get("mesh")
    return config if isinstance(config, MeshConfig) else BUILT_IN


@hub
def mesh_networks(db: Mesh) -> MeshNetworks:
    """Return the mesh networks, which are empty if none are configured."""
    networks = db.mesh.get("networks")
    return networks if isinstance(networks, MeshNetworks) else MeshNetworks()


@hub
def root_namespace(db: Mesh) -> str:
    """Return the root namespace, whose policies apply to all namespaces."""
    return mesh_config(db).root_namespace
