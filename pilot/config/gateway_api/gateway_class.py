"""gateway.networking.k8s.io GatewayClass. https://gateway-api.sigs.k8s.io/api-types/gatewayclass/"""

from __future__ import annotations

from pilot.config.base import Lenient


class GatewayClass(Lenient, frozen=True):
    """The controller that implements the Gateways of a class."""

    controller_name: str = ""
