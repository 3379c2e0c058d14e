"""Every UDPRoute."""

from __future__ import annotations

from pilot.config.gateway_api.l4_route import UDPRoute
from pilot.mesh.kinds.view import KindView

udp_routes = KindView[UDPRoute]("UDPRoute", lambda db: db.udp_routes)
