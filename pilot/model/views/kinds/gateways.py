"""Every Gateway of Istio's own kind, those among them that listeners of the Gateway API and Ingresses become."""

from __future__ import annotations

from pilot.model.config.gateway import Gateway
from pilot.model.views.gateway_api.istio_gateways import gateways_of_listeners
from pilot.model.views.ingress.gateways import gateways_of_ingresses
from pilot.model.views.kinds.view import KindView

gateways = KindView[Gateway]("Gateway", lambda db: db.gateways, gateways_of_listeners, gateways_of_ingresses)
