"""Every XBackend."""

from __future__ import annotations

from pilot.model.config.gateway_api.backend import XBackend
from pilot.model.views.kinds.view import KindView

backends = KindView[XBackend]("XBackend", lambda db: db.backends)
