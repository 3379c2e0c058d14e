"""Every Gateway of the Gateway API."""

from __future__ import annotations

from pilot.config.gateway_api.gateway import Gateway
from pilot.mesh.kinds.view import KindView

kubernetes_gateways = KindView[Gateway]("KubernetesGateway", lambda db: db.kubernetes_gateways)
