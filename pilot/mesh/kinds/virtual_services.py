"""Every VirtualService, those among them that routes of the Gateway API and Ingresses become."""

from __future__ import annotations

from pilot.config.networking.virtual_service import VirtualService
from pilot.mesh.kinds.view import KindView
from pilot.mesh.lowering.gateway_api.http_services import virtual_services_of_http_routes
from pilot.mesh.lowering.gateway_api.layer4_services import virtual_services_of_layer4_routes
from pilot.mesh.lowering.ingress.virtual_services import virtual_services_of_ingresses

virtual_services = KindView[VirtualService](
    "VirtualService",
    lambda db: db.virtual_services,
    virtual_services_of_http_routes,
    virtual_services_of_layer4_routes,
    virtual_services_of_ingresses,
)
