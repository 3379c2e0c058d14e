"""Every Sidecar."""

from __future__ import annotations

from pilot.config.networking.sidecar import Sidecar
from pilot.mesh.kinds.view import KindView

sidecars = KindView[Sidecar]("Sidecar", lambda db: db.sidecars)
