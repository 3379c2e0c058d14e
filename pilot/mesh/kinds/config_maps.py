"""Every ConfigMap of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.config_map import ConfigMap
from pilot.mesh.kinds.view import RegistryView

config_maps = RegistryView[ConfigMap]("ConfigMap", lambda db: db.config_maps)
