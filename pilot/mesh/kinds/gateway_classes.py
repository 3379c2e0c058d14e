"""Every GatewayClass."""

from __future__ import annotations

from pilot.config.gateway_api.gateway_class import GatewayClass
from pilot.mesh.kinds.view import KindView

gateway_classes = KindView[GatewayClass]("GatewayClass", lambda db: db.gateway_classes)
