"""Every XBackend."""

from __future__ import annotations

from pilot.config.gateway_api.backend import XBackend
from pilot.mesh.kinds.view import KindView

backends = KindView[XBackend]("XBackend", lambda db: db.backends)
