"""Every TCPRoute."""

from __future__ import annotations

from pilot.config.gateway_api.l4_route import TCPRoute
from pilot.mesh.kinds.view import KindView

tcp_routes = KindView[TCPRoute]("TCPRoute", lambda db: db.tcp_routes)
