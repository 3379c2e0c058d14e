"""Every TLSRoute."""

from __future__ import annotations

from pilot.config.gateway_api.l4_route import TLSRoute
from pilot.mesh.kinds.view import KindView

tls_routes = KindView[TLSRoute]("TLSRoute", lambda db: db.tls_routes)
