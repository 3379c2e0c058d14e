"""Every HTTPRoute."""

from __future__ import annotations

from pilot.config.gateway_api.http_route import HTTPRoute
from pilot.mesh.kinds.view import KindView

http_routes = KindView[HTTPRoute]("HTTPRoute", lambda db: db.http_routes)
