"""Every VirtualService, those among them that routes of the Gateway API and Ingresses become."""

from __future__ import annotations

from pilot.model.config.virtual_service import VirtualService
from pilot.model.views.gateway_api.http_services import virtual_services_of_http_routes
from pilot.model.views.gateway_api.layer4_services import virtual_services_of_layer4_routes
from pilot.model.views.ingress.virtual_services import virtual_services_of_ingresses
from pilot.model.views.kinds.view import KindView

virtual_services = KindView[VirtualService](
    "VirtualService",
    lambda db: db.virtual_services,
    virtual_services_of_http_routes,
    virtual_services_of_layer4_routes,
    virtual_services_of_ingresses,
)
