"""Every GRPCRoute."""

from __future__ import annotations

from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.mesh.kinds.view import KindView

grpc_routes = KindView[GRPCRoute]("GRPCRoute", lambda db: db.grpc_routes)
