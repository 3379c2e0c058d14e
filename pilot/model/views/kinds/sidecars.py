"""Every Sidecar."""

from __future__ import annotations

from pilot.model.config.sidecar import Sidecar
from pilot.model.views.kinds.view import KindView

sidecars = KindView[Sidecar]("Sidecar", lambda db: db.sidecars)
