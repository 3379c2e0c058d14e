"""Every VirtualService."""
from __future__ import annotations

from pilot.model.config.virtual_service import VirtualService
from pilot.model.views.kinds.view import KindView

virtual_services = KindView[VirtualService]("VirtualService", lambda db: db.virtual_services)
