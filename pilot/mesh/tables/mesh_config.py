"""The mesh config and the mesh networks."""

from __future__ import annotations

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh

BUILT_IN = MeshConfig()


def mesh_config(db: Mesh) -> MeshConfig:
    """Returns the whole mesh config. Whoever reads it is run again by any edit of it, so that what many values need goes through a hub."""
    found = db.mesh.get("mesh")
    return found if isinstance(found, MeshConfig) else BUILT_IN


@hub
def mesh_networks(db: Mesh) -> MeshNetworks:
    """Returns the mesh networks; they are empty where no file has any."""
    found = db.mesh.get("networks")
    return found if isinstance(found, MeshNetworks) else MeshNetworks()


@hub
def root_namespace(db: Mesh) -> str:
    """Returns the namespace whose policies and rules count for every other."""
    return mesh_config(db).root_namespace
