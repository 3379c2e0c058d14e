"""Every Pod of every cluster."""

from __future__ import annotations

from pilot.model.config.pod import Pod
from pilot.model.views.kinds.view import RegistryView

pods = RegistryView[Pod]("Pod", lambda db: db.pods)
