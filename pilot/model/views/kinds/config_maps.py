"""Every ConfigMap of every cluster."""
from __future__ import annotations

from pilot.model.config.config_map import ConfigMap
from pilot.model.inputs import Mesh
from pilot.model.views.kinds.view import RegistryView

config_maps = RegistryView[ConfigMap]("ConfigMap", lambda db: db.config_maps)


def has_config_map(db: Mesh, name: str, namespace: str) -> bool:
    """Returns whether a namespace has the ConfigMap, in whichever cluster."""
    return bool(config_maps.keys(db, "named", (namespace, name)))
