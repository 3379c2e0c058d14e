"""gateway.networking.k8s.io GatewayClass. https://gateway-api.sigs.k8s.io/api-types/gatewayclass/"""

from __future__ import annotations

from pilot.config.base import Lenient


class GatewayClass(Lenient, frozen=True):
    """Gateways of a class are the controller's that it names."""

    controller_name: str = ""
