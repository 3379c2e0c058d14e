"""Every XBackendTrafficPolicy."""

from __future__ import annotations

from pilot.config.gateway_api.backend_policy import XBackendTrafficPolicy
from pilot.mesh.kinds.view import KindView

backend_traffic_policies = KindView[XBackendTrafficPolicy](
    "XBackendTrafficPolicy", lambda db: db.backend_traffic_policies
)
