"""Every Gateway of Istio's own kind, those among them that listeners of the Gateway API and Ingresses become."""

from __future__ import annotations

from pilot.config.networking.gateway import Gateway
from pilot.mesh.kinds.view import KindView
from pilot.mesh.lowering.gateway_api.istio_gateways import gateways_of_listeners
from pilot.mesh.lowering.ingress.gateways import gateways_of_ingresses

gateways = KindView[Gateway]("Gateway", lambda db: db.gateways, gateways_of_listeners, gateways_of_ingresses)
