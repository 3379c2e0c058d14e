"""Every Gateway."""
from __future__ import annotations

from pilot.model.config.gateway import Gateway
from pilot.model.views.kinds.view import KindView

gateways = KindView[Gateway]("Gateway", lambda db: db.gateways)
