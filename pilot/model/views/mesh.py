"""The mesh config."""
from __future__ import annotations

from pilot.model.config.mesh_config import MeshConfig
from pilot.model.inputs import Mesh

BUILT_IN = MeshConfig()


def mesh_config(db: Mesh) -> MeshConfig:
    """The mesh config, whole: who reads it is rerun by any edit of it, so that what many values need goes through a hub."""
    found = db.mesh.get("mesh")
    return found if isinstance(found, MeshConfig) else BUILT_IN
