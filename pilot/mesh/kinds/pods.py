"""Every Pod of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.pod import Pod
from pilot.mesh.kinds.view import RegistryView

pods = RegistryView[Pod]("Pod", lambda db: db.pods)
